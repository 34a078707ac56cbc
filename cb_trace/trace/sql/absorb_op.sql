INSERT INTO op BY NAME
SELECT
  $first_op + $rows_before + raw_part.rowid AS op_id,
  $trace_id AS trace_id,
  trim(name) AS name,
  thread,
  start_ns,
  dur_ns,
  external_id,
  sequence_number,
  forward_thread
FROM raw_part JOIN raw_track USING (pid, tid)
WHERE kind = 'op';
