-- How long does a step take, bare and under the profiler?
--
-- Columns:
--   run_id      recording
--   kind        bare, bare_one_stream (of a step on several streams, all on one), bare_after (a check
--               made after the profiler ran), profiled or sequence
--   deployment  way of running: eager or graph
--   samples     number of timings
--   median_us   median, µs
--   low_us      first quartile, µs
--   high_us     third quartile, µs
--   dilation    median over the bare median of the same deployment, ratio
--
-- Reads the table step_sample: one row a timing.
-- No rows: the step was not timed by itself; 'cb-trace compare' has it under the profiler.
--
-- Example:
--   duckdb -readonly profile.duckdb -f queries/step_time.sql
WITH timing AS (
    SELECT
        run_id,
        kind,
        deployment,
        count(*) AS samples,
        median(ns) / 1e3 AS median_us,
        quantile_cont(ns, 0.25) / 1e3 AS low_us,
        quantile_cont(ns, 0.75) / 1e3 AS high_us
    FROM step_sample
    GROUP BY ALL
)
SELECT
    timing.run_id,
    timing.kind,
    timing.deployment,
    timing.samples,
    timing.median_us,
    timing.low_us,
    timing.high_us,
    timing.median_us / bare.median_us AS dilation
FROM timing
LEFT JOIN timing AS bare
    ON bare.run_id = timing.run_id
    AND bare.deployment = timing.deployment
    AND bare.kind = 'bare'
ORDER BY timing.run_id, timing.deployment, timing.kind;
