INSERT INTO python_module
SELECT
  raw_module.python_id,
  $trace_id,
  nullif(parent, -1),
  name,
  thread,
  start_ns,
  greatest(end_ns - start_ns, 0)
FROM raw_module JOIN raw_frame ON raw_frame.rowid = raw_module.row
ORDER BY raw_module.python_id;
