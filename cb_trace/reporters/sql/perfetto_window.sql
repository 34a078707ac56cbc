-- When the last kernel ends that a module call launched, itself or from a call within it.
-- $call_id
WITH RECURSIVE inner_call AS (
  SELECT call_id, trace_id FROM module_call WHERE call_id = $call_id
  UNION ALL
  SELECT call.call_id, call.trace_id
  FROM inner_call
  JOIN module_call AS call ON call.parent_call_id = inner_call.call_id
)
SELECT max(kernel.start_ns + kernel.dur_ns) AS end_ns
FROM inner_call
JOIN kernel_module AS share ON share.call_id = inner_call.call_id
JOIN kernel ON kernel.kernel_id = share.kernel_id AND kernel.trace_id = inner_call.trace_id
