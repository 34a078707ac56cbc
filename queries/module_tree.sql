-- What does the model look like, and what does each part cost, children included?
--
-- Columns:
--   module      path, indented by depth; the root by its class
--   class       class name
--   parameters  parameters, children included, count
--   rank        rank of the recording
--   deployment  way of running: eager or graph
--   phase       forward, backward, …; NULL for a module that never ran
--   calls       calls a step
--   kernels     device activities a step
--   cost_us     part of the step, children included, µs
--
-- Reads the tables module, since a module that never ran is in no view, and trace for the rank.
-- No rows: no module is named in the trace.
--
-- Example:
--   duckdb -readonly profile.duckdb -f queries/module_tree.sql
WITH ranked AS (
    SELECT run_id, min(rank) AS rank FROM trace GROUP BY run_id
)
SELECT
    repeat('  ', module.depth)
        || CASE WHEN module.path = '' THEN module.class ELSE module.path END AS module,
    module.class,
    module.parameters,
    ranked.rank,
    compare.deployment,
    compare.phase,
    compare.calls,
    compare.kernels,
    compare.cost_us
FROM module
LEFT JOIN compare USING (run_id, path)
LEFT JOIN ranked USING (run_id)
ORDER BY ranked.rank, module.run_id, compare.deployment, module.ordinal, compare.phase;
