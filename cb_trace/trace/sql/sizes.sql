SELECT
  (SELECT count(*) FROM kernel WHERE trace_id = $trace_id),
  (SELECT count(*) FROM launch WHERE trace_id = $trace_id),
  (SELECT count(*) FROM op WHERE trace_id = $trace_id),
  (SELECT count(*) FROM step WHERE trace_id = $trace_id)
