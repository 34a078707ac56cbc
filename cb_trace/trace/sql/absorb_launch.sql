INSERT INTO raw_launch
SELECT
  $first_launch + $rows_before + raw_part.rowid,
  cat,
  name,
  thread,
  start_ns,
  dur_ns,
  CASE WHEN correlation <> 0 THEN correlation END
FROM raw_part JOIN raw_track USING (pid, tid)
WHERE kind = 'launch';
