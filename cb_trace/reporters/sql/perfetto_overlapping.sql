-- Kernels that begin while an earlier one of their stream still runs, and end after it: the UI of
-- some versions drops such a slice.
-- $trace_id
WITH running AS (
  SELECT
    kernel_id, name, thread, start_ns, dur_ns,
    max(start_ns + dur_ns) OVER (
      PARTITION BY thread ORDER BY start_ns, dur_ns DESC, kernel_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS busy_until_ns
  FROM kernel
  WHERE trace_id = $trace_id AND kind <> 'cpu'
)
SELECT running.kernel_id, running.name, running.start_ns, running.dur_ns,
  coalesce(trim(thread.name), 'stream') AS stream
FROM running
JOIN thread ON thread.thread = running.thread
WHERE running.start_ns < running.busy_until_ns
  AND running.start_ns + running.dur_ns > running.busy_until_ns
ORDER BY running.start_ns, running.kernel_id
