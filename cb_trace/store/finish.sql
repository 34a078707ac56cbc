-- What is stored when a profile is whole, so that the views need not work it out at each question:
-- planning it took longer than answering.

INSERT INTO _descendant
WITH RECURSIVE descendant AS (
    SELECT module_id AS ancestor_id, module_id FROM module
    UNION ALL
    SELECT descendant.ancestor_id, module.module_id
    FROM descendant
    JOIN module ON module.parent_id = descendant.module_id
)
SELECT ancestor_id, module_id FROM descendant;

-- A module that ran without owning a part of the step costs 0; without a partition, NULL.
-- Phase step holds all phases of a module together; its rows in ran say where there is one.
INSERT INTO _cost
WITH active AS (
    SELECT module_id, phase FROM module_context
    UNION
    SELECT module_id, phase FROM partition WHERE module_id IS NOT NULL
), ran AS ( -- and every module that holds something that ran
    SELECT DISTINCT _descendant.ancestor_id AS module_id, active.phase
    FROM active
    JOIN _descendant USING (module_id)
), part AS (
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
    ran.module_id,
    ran.phase,
    coalesce(inclusive.ns, CASE WHEN _deployment.is_split THEN 0 END) AS ns
FROM ran
JOIN module USING (module_id)
JOIN _deployment ON _deployment.run_id = module.run_id
LEFT JOIN inclusive
    ON inclusive.module_id = ran.module_id
    AND inclusive.phase = ran.phase
    AND inclusive.deployment = _deployment.deployment;

-- The isolated figure of every module: its own, else the sum over the nearest measured modules
-- below it. The sum is partial where it lacks work: of a module that was called, was not measured,
-- and holds no other or has work of its own beside that of those it holds.
INSERT INTO _isolated
WITH RECURSIVE owner AS (
    SELECT DISTINCT module_id, phase FROM partition WHERE module_id IS NOT NULL AND ns <> 0
), node AS (
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
            AND coalesce(module_context.calls > 0, FALSE)
            AND (
                owner.module_id IS NOT NULL
                OR module.module_id NOT IN (SELECT parent_id FROM module WHERE parent_id IS NOT NULL)
            ) AS missing
    FROM (SELECT DISTINCT run_id, phase, condition FROM replay) AS measurement
    JOIN module ON module.run_id = measurement.run_id
    LEFT JOIN _measured AS own
        ON own.module_id = module.module_id
        AND own.phase = measurement.phase
        AND own.condition = measurement.condition
    LEFT JOIN module_context
        ON module_context.module_id = module.module_id
        AND module_context.phase = measurement.phase
    LEFT JOIN owner
        ON owner.module_id = module.module_id
        AND owner.phase = measurement.phase
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
