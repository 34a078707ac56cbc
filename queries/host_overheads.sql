-- What does the host take around and within each operator, without a profiler?
--
-- Columns:
--   kind         T1 between operators, T2 start to first launch, T3 last launch to end, T4 the launch
--                call, T5 between launches (all of an operator that launches nothing)
--   name         operator; NULL for T1
--   launches     kernels that the operator launches; NULL for T1 and T4
--   boundaries   calls of modules that begin or end in the gap; NULL but for T1
--   count        how many were seen in the recorded steps
--   measured     of them in modules that the host bounds alone; if any, the figures are theirs
--   value_us     median, µs
--   low_us       lower quartile, µs
--   high_us      upper quartile, µs
--   profiled_us  median under the profiler, µs
--   share        of all the host time that is listed, ratio
-- No rows: the recording has no eager steps on a device.
--
-- Example:
--   duckdb -readonly profile.duckdb -f queries/host_overheads.sql
SELECT
    kind,
    name,
    launches,
    boundaries,
    count,
    measured,
    value_us,
    low_us,
    high_us,
    profiled_us,
    share
FROM host_overhead
ORDER BY share DESC, kind, name, launches, boundaries;
