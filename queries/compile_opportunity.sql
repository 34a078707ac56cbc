-- What does compiling save each module alone, and what in the whole?
--
-- Columns:
--   deployment       eager (launched by the host) or graph
--   path             module path; empty for the root
--   class            class name
--   phase            forward or backward
--   eager_us         alone, not compiled, bare wall a step, µs
--   compiled_us      alone, compiled, bare wall a step, µs
--   cost_us          part of the compiled step, µs
--   promise_us       eager_us less compiled_us, µs
--   delivery_us      eager_us less cost_us, µs
--   flip             slower alone: compiling costs the module time alone and helps the whole; faster
--                    alone: the reverse; NULL where both say the same
--   innermost        whether no module below it was measured alone
--   eager_gpu_us     alone, not compiled, device busy, µs
--   compiled_gpu_us  alone, compiled, device busy, µs
-- No rows: the recorded step was not compiled, or nothing was measured alone.
--
-- Example:
--   duckdb -readonly profile.duckdb -f queries/compile_opportunity.sql
SELECT
    deployment,
    path,
    class,
    phase,
    eager_us,
    compiled_us,
    cost_us,
    promise_us,
    delivery_us,
    flip,
    innermost,
    eager_gpu_us,
    compiled_gpu_us
FROM compile_opportunity
ORDER BY deployment, delivery_us - promise_us DESC, path, phase;
