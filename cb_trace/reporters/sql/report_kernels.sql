-- The kernels that each module ran itself, mean over the recorded steps.
-- $run_id, $most
WITH recorded AS (
  SELECT
    trace.trace_id,
    (SELECT count(*) FROM step WHERE step.trace_id = trace.trace_id) AS steps
  FROM trace
  WHERE trace.run_id = $run_id AND trace.role IN ('context', 'foreign')
  ORDER BY trace.trace_id
  LIMIT 1
)
SELECT
  module.path,
  part.phase,
  op.name AS op,
  kernel.name AS kernel,
  sum(part.share) / greatest(any_value(recorded.steps), 1) AS kernels,
  sum(part.ns) / 1e3 / greatest(any_value(recorded.steps), 1) AS us
FROM kernel
JOIN recorded ON recorded.trace_id = kernel.trace_id
JOIN kernel_module AS part ON part.kernel_id = kernel.kernel_id
JOIN module ON module.module_id = part.module_id
LEFT JOIN op ON op.op_id = kernel.op_id
WHERE recorded.steps = 0 OR kernel.step IS NOT NULL
GROUP BY module.path, part.phase, op.name, kernel.name
ORDER BY us DESC, module.path, part.phase, op.name, kernel.name
LIMIT $most
