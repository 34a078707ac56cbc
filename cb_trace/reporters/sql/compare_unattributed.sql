-- Device time that no module can be given, by reason, over everything that was recorded.
-- $run_id
SELECT share.reason, count(DISTINCT share.kernel_id) AS kernels, sum(share.ns)::BIGINT AS ns
FROM kernel_module AS share
JOIN kernel ON kernel.kernel_id = share.kernel_id
JOIN trace ON trace.trace_id = kernel.trace_id
WHERE trace.run_id = $run_id
  AND trace.role IN ('context', 'foreign')
  AND share.module_id IS NULL
GROUP BY share.reason
ORDER BY ns DESC, share.reason
