-- Whether steps of a trace overlap by more than rounding: those of one process were made not to.
-- $trace_id
SELECT coalesce(bool_or(start_ns + 1000 < ended_ns), FALSE)
FROM (
  SELECT
    start_ns,
    max(start_ns + dur_ns) OVER (
      ORDER BY start_ns, dur_ns DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS ended_ns
  FROM step
  WHERE trace_id = $trace_id
)
