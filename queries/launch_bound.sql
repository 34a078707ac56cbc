-- Which modules wait for the host when they run alone?
--
-- Columns:
--   deployment       way of running that cost_us is about: eager, graph where that alone was timed
--   path             module path; empty for the root
--   class            class name
--   phase            forward, backward, …
--   isolated_us      alone, back to back, bare wall a step, µs
--   isolated_gpu_us  of that, device busy, µs
--   host_us          isolated_us less isolated_gpu_us, µs
--   host_ratio       host_us over isolated_us, ratio
--   cost_us          part of the step, µs
--
-- Variables: ratio, the host_ratio from which a module is listed (0.5).
-- No rows: nothing was measured alone, or nothing waits that long.
--
-- Example:
--   duckdb -readonly profile.duckdb -cmd "SET VARIABLE ratio = 0.8" -f queries/launch_bound.sql
WITH alone AS (
    SELECT
        deployment,
        path,
        class,
        phase,
        isolated_us,
        isolated_gpu_us,
        isolated_us - isolated_gpu_us AS host_us,
        cost_us
    FROM compare
    WHERE isolated_from IN ('replay', 'shared')
    QUALIFY deployment = min(deployment) OVER (PARTITION BY run_id)
)
SELECT
    deployment,
    path,
    class,
    phase,
    isolated_us,
    isolated_gpu_us,
    host_us,
    host_us / isolated_us AS host_ratio,
    cost_us
FROM alone
WHERE host_us / isolated_us >= coalesce(getvariable('ratio'), 0.5)
ORDER BY host_us DESC, path, phase;
