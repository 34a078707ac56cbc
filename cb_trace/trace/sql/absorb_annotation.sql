INSERT INTO annotation
SELECT
  $first_annotation + $rows_before + raw_part.rowid,
  $trace_id,
  CASE WHEN cat = 'user_annotation' THEN 'user' ELSE 'gpu' END,
  name,
  thread,
  start_ns,
  dur_ns
FROM raw_part JOIN raw_track USING (pid, tid)
WHERE kind = 'annotation';
