-- Of these waits the ones in which nothing else ran either: how many, and how long.
WITH busy AS (
  SELECT start_ns, max(start_ns + dur_ns) OVER (ORDER BY start_ns, kernel_id) AS until_ns
  FROM kernel
  WHERE trace_id = $trace_id
)
SELECT count(*), coalesce(sum(ns), 0)
FROM raw_wait
ASOF JOIN busy ON raw_wait.end_ns > busy.start_ns
WHERE busy.until_ns <= raw_wait.last_ns
