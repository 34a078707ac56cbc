-- How often the step was timed, and what came out.
-- $run_id
SELECT
  kind, deployment, count(*) AS samples,
  median(ns) / 1e3 AS median_us,
  quantile_cont(ns, 0.05) / 1e3 AS p5_us,
  quantile_cont(ns, 0.95) / 1e3 AS p95_us
FROM step_sample
WHERE run_id = $run_id
GROUP BY kind, deployment
ORDER BY deployment, list_position(['bare', 'bare_after', 'profiled', 'sequence'], kind)
