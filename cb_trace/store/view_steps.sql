-- What the public views are made of: names that start with _ are no promise.

CREATE TABLE _descendant (ancestor_id INTEGER, module_id INTEGER);
COMMENT ON TABLE _descendant IS 'Step: every module with each module below it and itself';
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

CREATE TABLE _cost (deployment VARCHAR, module_id INTEGER, phase VARCHAR, ns BIGINT);
COMMENT ON TABLE _cost IS 'Step: the partition summed over each module that ran and those below it';
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
    CASE WHEN bool_and(source.busy_ns IS NOT NULL) THEN sum(replay.calls * source.busy_ns) END
        AS busy_ns,
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

CREATE TABLE _isolated (
    module_id INTEGER, phase VARCHAR, condition VARCHAR, wall_ns BIGINT, busy_ns BIGINT,
    low_ns BIGINT, high_ns BIGINT, isolated_from VARCHAR
);
COMMENT ON TABLE _isolated IS
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
