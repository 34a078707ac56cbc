-- How many kernels run on the device at once, where that number changes.
-- $trace_id
WITH change AS (
  SELECT start_ns AS at_ns, 1 AS step FROM kernel
  WHERE trace_id = $trace_id AND kind <> 'cpu' AND dur_ns > 0
  UNION ALL
  SELECT start_ns + dur_ns, -1 FROM kernel
  WHERE trace_id = $trace_id AND kind <> 'cpu' AND dur_ns > 0
),
moment AS (
  SELECT at_ns, sum(sum(step)) OVER (ORDER BY at_ns) AS running, sum(step) AS step
  FROM change
  GROUP BY at_ns
)
SELECT at_ns, running::BIGINT AS running FROM moment WHERE step <> 0 ORDER BY at_ns
