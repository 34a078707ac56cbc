-- Kernels that belong to several modules: each module's part, mean over the recorded steps. Of a
-- recording without steps, which is one step, all kernels.
-- $run_id, $most
WITH recorded AS (
  SELECT count(*) AS steps
  FROM step
  JOIN trace ON trace.trace_id = step.trace_id
  WHERE trace.run_id = $run_id AND trace.role IN ('context', 'foreign')
), part AS (
  SELECT kernel_id, name, path, us
  FROM fused_kernel
  CROSS JOIN recorded
  WHERE run_id = $run_id AND (step IS NOT NULL OR recorded.steps = 0)
), kernel_sum AS (
  SELECT name, sum(us) AS us
  FROM part
  GROUP BY name
  ORDER BY us DESC, name
  LIMIT $most
)
SELECT
  part.name AS kernel,
  part.path,
  sum(part.us) / any_value(greatest(recorded.steps, 1)) AS us,
  sum(part.us) / any_value(kernel_sum.us) AS share,
  count(DISTINCT part.kernel_id) / any_value(greatest(recorded.steps, 1)) AS kernels
FROM part
JOIN kernel_sum ON kernel_sum.name = part.name
CROSS JOIN recorded
GROUP BY part.name, part.path
ORDER BY any_value(kernel_sum.us) DESC, part.name, us DESC, part.path
