-- What the public views are made of: names that start with _ are no promise.

CREATE VIEW _descendant AS
WITH RECURSIVE descendant AS (
    SELECT module_id AS ancestor_id, module_id FROM module
    UNION ALL
    SELECT descendant.ancestor_id, module.module_id
    FROM descendant
    JOIN module ON module.parent_id = descendant.module_id
)
SELECT ancestor_id, module_id FROM descendant;
COMMENT ON VIEW _descendant IS 'Step: every module with each module below it and itself';
COMMENT ON COLUMN _descendant.ancestor_id IS 'Module';
COMMENT ON COLUMN _descendant.module_id IS 'Itself or a module below it';

CREATE VIEW _deployment AS
SELECT DISTINCT run_id, deployment, TRUE AS is_split FROM partition
UNION ALL
SELECT run_id, 'eager', FALSE FROM run WHERE run_id NOT IN (SELECT run_id FROM partition);
COMMENT ON VIEW _deployment IS 'Step: the deployments of each recording';
COMMENT ON COLUMN _deployment.run_id IS 'Recording';
COMMENT ON COLUMN _deployment.deployment IS 'eager or graph';
COMMENT ON COLUMN _deployment.is_split IS 'Whether there is a partition of its step';

-- What ran, and every module that holds something that ran.
CREATE VIEW _ran AS
WITH active AS (
    SELECT module_id, phase FROM module_context
    UNION
    SELECT module_id, phase FROM partition WHERE module_id IS NOT NULL
)
SELECT DISTINCT _descendant.ancestor_id AS module_id, active.phase
FROM active
JOIN _descendant USING (module_id);
COMMENT ON VIEW _ran IS 'Step: modules for which something ran, and all that hold one';
COMMENT ON COLUMN _ran.module_id IS 'Module';
COMMENT ON COLUMN _ran.phase IS 'Phase';

-- A module that ran without owning a part of the step costs 0; without a partition, NULL.
-- Phase step holds all phases of a module together; its rows in _ran say where there is one.
CREATE VIEW _cost AS
WITH part AS (
    SELECT deployment, module_id, phase, ns FROM partition
    UNION ALL
    SELECT deployment, module_id, 'step' AS phase, ns FROM partition WHERE phase <> 'step'
), inclusive AS (
    SELECT
        part.deployment,
        _descendant.ancestor_id AS module_id,
        part.phase,
        sum(part.ns) AS ns
    FROM part
    JOIN _descendant USING (module_id)
    GROUP BY ALL
)
SELECT
    _deployment.deployment,
    _ran.module_id,
    _ran.phase,
    coalesce(inclusive.ns, CASE WHEN _deployment.is_split THEN 0 END) AS ns
FROM _ran
JOIN module USING (module_id)
JOIN _deployment ON _deployment.run_id = module.run_id
LEFT JOIN inclusive
    ON inclusive.module_id = _ran.module_id
    AND inclusive.phase = _ran.phase
    AND inclusive.deployment = _deployment.deployment;
COMMENT ON VIEW _cost IS 'Step: the partition summed over each module that ran and those below it';
COMMENT ON COLUMN _cost.deployment IS 'eager or graph';
COMMENT ON COLUMN _cost.module_id IS 'Module';
COMMENT ON COLUMN _cost.phase IS 'Phase';
COMMENT ON COLUMN _cost.ns IS 'Part of the step, ns';

-- A module's own measurements, per step. One call that was skipped leaves the module unmeasured.
CREATE VIEW _measured AS
SELECT
    replay.module_id,
    replay.phase,
    replay.condition,
    sum(replay.calls * source.median_ns) AS wall_ns,
    sum(replay.calls * source.busy_ns) AS busy_ns,
    sum(replay.calls * source.low_ns) AS low_ns,
    sum(replay.calls * source.high_ns) AS high_ns,
    bool_or(source.module_id <> replay.module_id) AS shared
FROM replay
JOIN replay AS source ON source.replay_id = replay.measured_id
GROUP BY ALL
HAVING bool_and(replay.skipped IS NULL AND source.median_ns IS NOT NULL);
COMMENT ON VIEW _measured IS 'Step: modules whose calls were all measured alone, per step';
COMMENT ON COLUMN _measured.module_id IS 'Module';
COMMENT ON COLUMN _measured.phase IS 'Phase';
COMMENT ON COLUMN _measured.condition IS 'hot, cold or graph';
COMMENT ON COLUMN _measured.wall_ns IS 'Bare wall, ns';
COMMENT ON COLUMN _measured.busy_ns IS 'Union of kernel intervals (U), ns';
COMMENT ON COLUMN _measured.low_ns IS 'Lower bound of the bare wall, ns';
COMMENT ON COLUMN _measured.high_ns IS 'Upper bound of the bare wall, ns';
COMMENT ON COLUMN _measured.shared IS 'Whether an identical module was measured in its place';

-- The isolated figure of every module: its own, else the sum over the nearest measured modules
-- below it. A module that was called, holds no other and was not measured makes the sum partial.
CREATE VIEW _isolated AS
WITH RECURSIVE node AS (
    SELECT
        measurement.phase,
        measurement.condition,
        module.module_id,
        module.parent_id,
        own.wall_ns,
        own.busy_ns,
        own.low_ns,
        own.high_ns,
        own.shared,
        own.module_id IS NOT NULL AS measured,
        own.module_id IS NULL
            AND module.module_id NOT IN (SELECT parent_id FROM module WHERE parent_id IS NOT NULL)
            AND coalesce(module_context.calls > 0, FALSE) AS missing
    FROM (SELECT DISTINCT run_id, phase, condition FROM replay) AS measurement
    JOIN module ON module.run_id = measurement.run_id
    LEFT JOIN _measured AS own
        ON own.module_id = module.module_id
        AND own.phase = measurement.phase
        AND own.condition = measurement.condition
    LEFT JOIN module_context
        ON module_context.module_id = module.module_id
        AND module_context.phase = measurement.phase
), below AS (
    SELECT module_id AS ancestor_id, node.* FROM node
    UNION ALL
    SELECT below.ancestor_id, node.*
    FROM below
    JOIN node
        ON node.parent_id = below.module_id
        AND node.phase = below.phase
        AND node.condition = below.condition
    WHERE NOT below.measured
)
SELECT
    ancestor_id AS module_id,
    phase,
    condition,
    sum(wall_ns) AS wall_ns,
    sum(busy_ns) AS busy_ns,
    sum(low_ns) AS low_ns,
    sum(high_ns) AS high_ns,
    CASE
        WHEN bool_or(measured AND ancestor_id = module_id AND shared) THEN 'shared'
        WHEN bool_or(measured AND ancestor_id = module_id) THEN 'replay'
        WHEN bool_or(measured) AND bool_or(missing) THEN 'partial'
        WHEN bool_or(measured) THEN 'children'
    END AS isolated_from
FROM below
GROUP BY ALL;
COMMENT ON VIEW _isolated IS
    'Step: the isolated figure of every module, its own or that of those below it, per step';
COMMENT ON COLUMN _isolated.module_id IS 'Module';
COMMENT ON COLUMN _isolated.phase IS 'Phase';
COMMENT ON COLUMN _isolated.condition IS 'hot, cold or graph';
COMMENT ON COLUMN _isolated.wall_ns IS 'Bare wall, ns';
COMMENT ON COLUMN _isolated.busy_ns IS 'Union of kernel intervals (U), ns';
COMMENT ON COLUMN _isolated.low_ns IS 'Lower bound of the bare wall, ns';
COMMENT ON COLUMN _isolated.high_ns IS 'Upper bound of the bare wall, ns';
COMMENT ON COLUMN _isolated.isolated_from IS
    'replay, shared, children or partial; NULL where nothing was measured';

CREATE VIEW _terms AS
SELECT
    module_id,
    phase,
    deployment,
    max(ns) FILTER (WHERE kind = 'launch') AS launch_ns,
    max(ns) FILTER (WHERE kind = 'cache') AS cache_ns,
    max(ns) FILTER (WHERE kind = 'kernel_choice') AS kernel_choice_ns,
    max(ns) FILTER (WHERE kind = 'fusion') AS fusion_ns,
    max(ns) FILTER (WHERE kind = 'overlap') AS overlap_ns,
    max(ns) FILTER (WHERE kind = 'contention') AS contention_ns,
    max(ns) FILTER (WHERE kind = 'idle') AS idle_ns,
    max(ns) FILTER (WHERE kind = 'residual') AS residual_ns
FROM term
GROUP BY ALL;
COMMENT ON VIEW _terms IS 'Step: one column a term of the error';
COMMENT ON COLUMN _terms.module_id IS 'Module';
COMMENT ON COLUMN _terms.phase IS 'Phase';
COMMENT ON COLUMN _terms.deployment IS 'eager or graph';
COMMENT ON COLUMN _terms.launch_ns IS 'Launch, ns';
COMMENT ON COLUMN _terms.cache_ns IS 'Cache, ns';
COMMENT ON COLUMN _terms.kernel_choice_ns IS 'Kernel choice, ns';
COMMENT ON COLUMN _terms.fusion_ns IS 'Fusion, ns';
COMMENT ON COLUMN _terms.overlap_ns IS 'Overlap, ns';
COMMENT ON COLUMN _terms.contention_ns IS 'Contention, ns';
COMMENT ON COLUMN _terms.idle_ns IS 'Idle, ns';
COMMENT ON COLUMN _terms.residual_ns IS 'Residual, ns';
