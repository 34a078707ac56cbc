-- The kernels of each module call of one trace, the call's share of each, and where Perfetto shows
-- them. A CPU kernel is a stretch of an operator, which has no slice of its own: the operator, once.
-- $trace_id
SELECT
  share.call_id,
  CASE WHEN kernel.kind = 'cpu' THEN op.start_ns ELSE kernel.start_ns END AS start_ns,
  thread.pid,
  thread.tid,
  CASE WHEN kernel.kind <> 'cpu' THEN kernel.kernel_id END AS kernel_id,
  CASE WHEN kernel.kind = 'cpu' THEN 1.0 ELSE sum(share.share) END AS share
FROM kernel_module AS share
JOIN kernel ON kernel.kernel_id = share.kernel_id
JOIN thread ON thread.thread = kernel.thread
LEFT JOIN op ON op.op_id = kernel.op_id
WHERE kernel.trace_id = $trace_id
  AND share.call_id IS NOT NULL
  AND (kernel.kind <> 'cpu' OR op.op_id IS NOT NULL)
GROUP BY share.call_id, kernel.kind, 2, thread.pid, thread.tid, 5
ORDER BY share.call_id, start_ns, kernel_id
