-- The step of each deployment: what its partition sums to, and the bounds of the bare step. Those
-- of the deployment as recorded are stored; the other's are the 95 % order statistics of its median.
-- So are those of the step on one stream, where it uses several.
-- $run_id
WITH ranked AS (
  SELECT
    kind,
    deployment,
    ns,
    row_number() OVER (PARTITION BY kind, deployment ORDER BY ns) AS rank,
    count(*) OVER (PARTITION BY kind, deployment) AS samples
  FROM step_sample
  WHERE run_id = $run_id AND kind IN ('bare', 'bare_one_stream')
), bounds AS (
  SELECT
    kind,
    deployment,
    floor(median(ns))::BIGINT AS ns,
    max(ns) FILTER (WHERE rank <= greatest(1, floor(samples / 2 - 0.98 * sqrt(samples)))) AS low_ns,
    min(ns) FILTER (
      WHERE rank >= least(samples, ceil(1 + samples / 2 + 0.98 * sqrt(samples)))
    ) AS high_ns
  FROM ranked
  GROUP BY kind, deployment
), split AS (
  SELECT deployment, sum(ns)::BIGINT AS ns FROM partition WHERE run_id = $run_id GROUP BY deployment
), parts AS (
  SELECT
    deployment,
    max(ns) FILTER (WHERE kind = 'predicted') AS predicted_ns,
    max(ns) FILTER (WHERE kind = 'kernel_sum') AS kernel_sum_ns,
    max(ns) FILTER (WHERE kind = 'isolation_sum') AS isolation_sum_ns
  FROM marginal
  WHERE run_id = $run_id AND module_id IS NULL
  GROUP BY deployment
)
SELECT
  split.deployment,
  split.ns,
  run.step_bare_ns IS NOT NULL AS bare,
  CASE WHEN recorded THEN run.step_bare_low_ns ELSE bounds.low_ns END AS low_ns,
  CASE WHEN recorded THEN run.step_bare_high_ns ELSE bounds.high_ns END AS high_ns,
  CASE WHEN recorded THEN run.dilation END AS dilation,
  parts.predicted_ns,
  parts.kernel_sum_ns,
  parts.isolation_sum_ns,
  one_stream.ns AS one_stream_ns,
  one_stream.low_ns AS one_stream_low_ns,
  one_stream.high_ns AS one_stream_high_ns
FROM (SELECT *, deployment = min(deployment) OVER () AS recorded FROM split) AS split
LEFT JOIN bounds ON bounds.deployment = split.deployment AND bounds.kind = 'bare'
LEFT JOIN bounds AS one_stream
  ON one_stream.deployment = split.deployment AND one_stream.kind = 'bare_one_stream'
LEFT JOIN parts ON parts.deployment = split.deployment
JOIN run ON run.run_id = $run_id
ORDER BY split.deployment
