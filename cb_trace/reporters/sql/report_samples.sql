-- How often the step was timed, and what came out; the clock right after each block, where it is known.
-- A profile of an earlier day has no such column, which as JSON is NULL.
-- $run_id
SELECT
  kind, deployment, count(*) AS samples,
  median(ns) / 1e3 AS median_us,
  quantile_cont(ns, 0.05) / 1e3 AS p5_us,
  quantile_cont(ns, 0.95) / 1e3 AS p95_us,
  min((to_json(step_sample) ->> 'sm_clock_mhz')::INTEGER) AS clock_low_mhz,
  max((to_json(step_sample) ->> 'sm_clock_mhz')::INTEGER) AS clock_high_mhz,
  max((to_json(step_sample) ->> 'temperature_c')::INTEGER) AS temperature_c
FROM step_sample
WHERE run_id = $run_id
GROUP BY kind, deployment
ORDER BY
  deployment,
  list_position(['bare', 'bare_one_stream', 'bare_after', 'profiled', 'sequence'], kind)
