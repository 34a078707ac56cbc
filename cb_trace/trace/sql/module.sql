INSERT INTO python_module BY NAME
SELECT
  raw_module.python_id,
  $trace_id AS trace_id,
  nullif(parent, -1) AS parent_python_id,
  name,
  thread,
  start_ns,
  greatest(end_ns - start_ns, 0) AS dur_ns
FROM raw_module JOIN raw_frame ON raw_frame.rowid = raw_module.row
ORDER BY raw_module.python_id;
