-- What does the model look like, and what does each part cost, children included?
--
-- Columns:
--   module      path, indented by depth; the root by its class
--   class       class name
--   parameters  parameters, children included, count
--   deployment  way of running: eager or graph
--   phase       forward, backward, …; NULL for a module that never ran
--   calls       calls a step
--   kernels     device activities a step
--   cost_us     part of the step, children included, µs
--
-- Reads the table module, since a module that never ran is in no view.
--
-- Example:
--   duckdb -readonly profile.duckdb -f queries/module_tree.sql
SELECT
    repeat('  ', module.depth)
        || CASE WHEN module.path = '' THEN module.class ELSE module.path END AS module,
    module.class,
    module.parameters,
    compare.deployment,
    compare.phase,
    compare.calls,
    compare.kernels,
    compare.cost_us
FROM module
LEFT JOIN compare USING (run_id, path)
ORDER BY module.run_id, compare.deployment, module.ordinal, compare.phase;
