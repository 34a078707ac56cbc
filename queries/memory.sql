-- Where are the bytes: parameters, activations kept for the backward, peaks?
--
-- Columns:
--   path                 module path; empty for the root
--   class                class name
--   phase                forward, backward, …; NULL for a module that was never called
--   parameter_mb         parameters, children included, 10⁶ bytes
--   buffer_mb            buffers, children included, 10⁶ bytes
--   saved_mb             activations that its calls keep for the backward, in the step, 10⁶ bytes
--   peak_mb              most in use during its largest call above its begin, in the step, 10⁶ bytes
--   saved_alone_mb       as saved_mb, alone
--   peak_alone_mb        as peak_mb, alone
--   output_mb            outputs of its largest call, 10⁶ bytes
--
-- Variables: n, the number of rows (20).
-- No rows: no bytes were counted.
--
-- Example:
--   duckdb -readonly profile.duckdb -cmd "SET VARIABLE n = 5" -f queries/memory.sql
SELECT
    path,
    class,
    phase,
    parameter_bytes / 1e6 AS parameter_mb,
    buffer_bytes / 1e6 AS buffer_mb,
    saved_context_bytes / 1e6 AS saved_mb,
    peak_context_bytes / 1e6 AS peak_mb,
    saved_isolated_bytes / 1e6 AS saved_alone_mb,
    peak_isolated_bytes / 1e6 AS peak_alone_mb,
    output_bytes / 1e6 AS output_mb
FROM memory_by_module
WHERE coalesce(
    parameter_bytes,
    buffer_bytes,
    saved_context_bytes,
    peak_context_bytes,
    saved_isolated_bytes,
    peak_isolated_bytes,
    output_bytes
) IS NOT NULL
ORDER BY
    greatest(coalesce(peak_context_bytes, 0), parameter_bytes + buffer_bytes) DESC,
    run_id,
    path,
    phase
LIMIT coalesce(getvariable('n'), 20);
