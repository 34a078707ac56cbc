INSERT INTO op
SELECT
  $first_op + $rows_before + raw_part.rowid,
  $trace_id,
  trim(name),
  thread,
  start_ns,
  dur_ns,
  external_id,
  sequence_number,
  forward_thread
FROM raw_part JOIN raw_track USING (pid, tid)
WHERE kind = 'op';
