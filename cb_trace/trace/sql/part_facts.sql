SELECT
  CAST(coalesce(sum(events), 0) AS BIGINT),
  max(last_start_ns),
  coalesce(bool_or(is_low_time), FALSE),
  coalesce(bool_or(is_low_id), FALSE)
FROM raw_summary
