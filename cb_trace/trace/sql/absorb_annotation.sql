INSERT INTO annotation BY NAME
SELECT
  $first_annotation + $rows_before + raw_part.rowid AS annotation_id,
  $trace_id AS trace_id,
  CASE WHEN cat = 'user_annotation' THEN 'user' ELSE 'gpu' END AS layer,
  name,
  thread,
  start_ns,
  dur_ns
FROM raw_part JOIN raw_track USING (pid, tid)
WHERE kind = 'annotation';
