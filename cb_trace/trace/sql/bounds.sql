-- The latest end of any event whose duration is possible, given how far the starts lie apart.
SELECT max(start_ns + dur_ns)
FROM (
  SELECT start_ns, dur_ns FROM op WHERE trace_id = $trace_id
  UNION ALL
  SELECT start_ns, dur_ns FROM annotation WHERE trace_id = $trace_id
  UNION ALL
  SELECT start_ns, dur_ns FROM raw_launch
  UNION ALL
  SELECT start_ns, dur_ns FROM raw_device
  UNION ALL
  SELECT start_ns, dur_ns FROM raw_frame
)
WHERE dur_ns BETWEEN 0 AND $limit_ns AND start_ns <> 0;
