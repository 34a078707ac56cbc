-- The kernels of each module call of one trace, and where Perfetto shows them.
-- $trace_id
SELECT
  share.call_id,
  kernel.start_ns,
  thread.pid,
  thread.tid
FROM kernel_module AS share
JOIN kernel ON kernel.kernel_id = share.kernel_id
JOIN thread ON thread.thread = kernel.thread
WHERE kernel.trace_id = $trace_id AND share.call_id IS NOT NULL
ORDER BY share.call_id, kernel.start_ns, kernel.kernel_id
