-- Which kernels does a module run, children included, in the step and alone?
--
-- Columns:
--   path              module path; empty for the root
--   phase             forward, backward, …
--   op                operator that launched the kernels
--   status            same, changed, only here (in the step) or only there (alone)
--   context_kernel    kernel in the step
--   isolated_kernel   kernel alone
--   context_kernels   runs in the step
--   isolated_kernels  runs alone, a step
--   context_us        duration in the step, as profiled, µs
--   isolated_us       duration alone, a step, as profiled, µs
--
-- Variables: module, a module path; the module that costs most after the root where not set.
-- No rows: the module was not replayed itself: it is a container or was skipped.
--
-- Example:
--   duckdb -readonly profile.duckdb -cmd "SET VARIABLE module = 'h.0'" -f queries/kernels_of_module.sql
WITH chosen AS (
    SELECT coalesce(
        getvariable('module'),
        (
            SELECT path
            FROM compare
            WHERE path <> '' AND isolated_from IN ('replay', 'shared')
            ORDER BY cost_us DESC, path
            LIMIT 1
        )
    ) AS path
)
SELECT
    path,
    phase,
    op,
    status,
    context_kernel,
    isolated_kernel,
    context_kernels,
    isolated_kernels,
    context_us,
    isolated_us
FROM kernel_diff
SEMI JOIN chosen USING (path)
ORDER BY
    greatest(context_us, isolated_us) DESC, phase, op, status, context_kernel, isolated_kernel;
