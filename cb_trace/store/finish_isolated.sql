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
    CASE
        WHEN bool_and(busy_ns IS NOT NULL) FILTER (WHERE measured) THEN sum(busy_ns)
    END AS busy_ns,
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
