-- When the last kernel ends that a module call launched, itself or from a call within it.
-- $call_id
WITH target AS (
  SELECT trace_id, thread, start_ns, start_ns + dur_ns AS end_ns
  FROM module_call
  WHERE call_id = $call_id
),
inner_call AS (
  SELECT call.call_id
  FROM module_call AS call
  JOIN target
    ON call.trace_id = target.trace_id
    AND call.thread = target.thread
    AND call.start_ns BETWEEN target.start_ns AND target.end_ns
)
SELECT max(kernel.start_ns + kernel.dur_ns) AS end_ns
FROM kernel
JOIN kernel_module AS share ON share.kernel_id = kernel.kernel_id
JOIN target ON target.trace_id = kernel.trace_id
WHERE share.call_id IN (SELECT call_id FROM inner_call)
