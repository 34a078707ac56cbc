-- What torch.compile makes of each module, alone and in the whole: in recordings of compiled steps,
-- where a module alone is measured compiled and as it is.

CREATE VIEW compile_opportunity AS
WITH measured AS (
    SELECT
        module_id,
        phase,
        max(wall_ns) FILTER (WHERE condition = 'eager') AS eager_ns,
        max(low_ns) FILTER (WHERE condition = 'eager') AS eager_low_ns,
        max(high_ns) FILTER (WHERE condition = 'eager') AS eager_high_ns,
        max(busy_ns) FILTER (WHERE condition = 'eager') AS eager_busy_ns,
        max(wall_ns) FILTER (WHERE condition = 'hot') AS compiled_ns,
        max(low_ns) FILTER (WHERE condition = 'hot') AS compiled_low_ns,
        max(high_ns) FILTER (WHERE condition = 'hot') AS compiled_high_ns,
        max(busy_ns) FILTER (WHERE condition = 'hot') AS compiled_busy_ns
    FROM _isolated
    WHERE isolated_from <> 'partial'
    GROUP BY module_id, phase
    HAVING eager_ns IS NOT NULL AND compiled_ns IS NOT NULL
), outer_module AS (
    SELECT DISTINCT _descendant.ancestor_id AS module_id, own.phase
    FROM _measured AS own
    JOIN _descendant USING (module_id)
    WHERE own.condition = 'hot' AND _descendant.ancestor_id <> own.module_id
)
SELECT
    module.run_id,
    cost.deployment,
    module.path,
    module.class,
    cost.phase,
    measured.eager_ns / 1e3 AS eager_us,
    measured.compiled_ns / 1e3 AS compiled_us,
    cost.ns / 1e3 AS cost_us,
    (measured.eager_ns - measured.compiled_ns) / 1e3 AS promise_us,
    (measured.eager_ns - cost.ns) / 1e3 AS delivery_us,
    CASE
        WHEN measured.compiled_low_ns > measured.eager_high_ns
            AND coalesce(bounds.high_ns, cost.ns) < measured.eager_low_ns THEN 'slower alone'
        WHEN measured.compiled_high_ns < measured.eager_low_ns
            AND coalesce(bounds.low_ns, cost.ns) > measured.eager_high_ns THEN 'faster alone'
    END AS flip,
    outer_module.module_id IS NULL AS innermost,
    measured.eager_busy_ns / 1e3 AS eager_gpu_us,
    measured.compiled_busy_ns / 1e3 AS compiled_gpu_us
FROM _cost AS cost
JOIN module USING (module_id)
JOIN measured ON measured.module_id = cost.module_id AND measured.phase = cost.phase
LEFT JOIN outer_module
    ON outer_module.module_id = cost.module_id AND outer_module.phase = cost.phase
LEFT JOIN cost_bounds AS bounds
    ON bounds.module_id = cost.module_id
    AND bounds.phase = cost.phase
    AND bounds.deployment = cost.deployment
ORDER BY module.run_id, cost.deployment, module.ordinal, cost.phase;
COMMENT ON VIEW compile_opportunity IS
    'Per module of a compiled step: alone as it is, alone compiled, and its share in the compiled '
    'whole; children included';
COMMENT ON COLUMN compile_opportunity.run_id IS 'Recording';
COMMENT ON COLUMN compile_opportunity.deployment IS
    'Way of running the compiled step: eager (launched by the host) or graph';
COMMENT ON COLUMN compile_opportunity.path IS 'Module path; empty for the root';
COMMENT ON COLUMN compile_opportunity.class IS 'Class name';
COMMENT ON COLUMN compile_opportunity.phase IS 'forward or backward';
COMMENT ON COLUMN compile_opportunity.eager_us IS 'Alone, not compiled, bare wall a step, us';
COMMENT ON COLUMN compile_opportunity.compiled_us IS 'Alone, compiled, bare wall a step, us';
COMMENT ON COLUMN compile_opportunity.cost_us IS 'Its part of the compiled step, us';
COMMENT ON COLUMN compile_opportunity.promise_us IS
    'What compiling it saves alone: eager_us less compiled_us, us';
COMMENT ON COLUMN compile_opportunity.delivery_us IS
    'What is left of it in the compiled step, taken off what it takes alone: eager_us less '
    'cost_us, us';
COMMENT ON COLUMN compile_opportunity.flip IS
    'Where alone and whole differ in sign, beyond noise: slower alone (compiling costs it time '
    'alone and yet its part of the compiled step is less than eager_us) or faster alone (the '
    'reverse); else NULL';
COMMENT ON COLUMN compile_opportunity.innermost IS
    'Whether no module below it was measured alone; promises of these can be added up';
COMMENT ON COLUMN compile_opportunity.eager_gpu_us IS
    'Alone, not compiled, union of kernel intervals a step, us';
COMMENT ON COLUMN compile_opportunity.compiled_gpu_us IS
    'Alone, compiled, union of kernel intervals a step, us';
