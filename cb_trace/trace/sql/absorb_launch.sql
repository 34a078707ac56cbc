INSERT INTO raw_launch
SELECT
  $first_launch + $rows_before + raw_part.rowid,
  cat,
  name,
  thread,
  start_ns,
  dur_ns,
  CASE WHEN correlation <> 0 THEN correlation END,
  trim(kernel_name),
  nullif(regexp_extract(translate(grid, '[] ', ''), '^\d+,\d+,\d+$'), ''),
  nullif(regexp_extract(translate(block, '[] ', ''), '^\d+,\d+,\d+$'), '')
FROM raw_part JOIN raw_track USING (pid, tid)
WHERE kind = 'launch';
