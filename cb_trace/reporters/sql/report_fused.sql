-- Kernels that belong to several modules: each module's part, mean over the recorded steps.
-- $run_id, $most
WITH kernel_sum AS (
  SELECT name, sum(us) AS us
  FROM fused_kernel
  WHERE run_id = $run_id AND step IS NOT NULL
  GROUP BY name
  ORDER BY us DESC, name
  LIMIT $most
), recorded AS (
  SELECT count(*) AS steps
  FROM step
  JOIN trace ON trace.trace_id = step.trace_id
  WHERE trace.run_id = $run_id AND trace.role IN ('context', 'foreign')
)
SELECT
  part.name AS kernel,
  part.path,
  sum(part.us) / any_value(recorded.steps) AS us,
  sum(part.us) / any_value(kernel_sum.us) AS share,
  count(DISTINCT part.kernel_id) / any_value(recorded.steps) AS kernels
FROM fused_kernel AS part
JOIN kernel_sum ON kernel_sum.name = part.name
CROSS JOIN recorded
WHERE part.run_id = $run_id AND part.step IS NOT NULL
GROUP BY part.name, part.path
ORDER BY any_value(kernel_sum.us) DESC, part.name, us DESC, part.path
