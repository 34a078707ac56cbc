-- The final rows of kernel, linked.
INSERT INTO kernel BY NAME
SELECT
  kernel_id,
  $trace_id AS trace_id,
  CASE
    WHEN category IN ('kernel', 'Kernel') THEN 'kernel'
    WHEN category IN ('gpu_memcpy', 'Memcpy') OR prefix(name, 'Memcpy') THEN 'memcpy'
    WHEN category IN ('gpu_memset', 'Memset') OR prefix(name, 'Memset') THEN 'memset'
    ELSE 'kernel'
  END AS kind,
  category,
  name,
  device,
  stream,
  thread,
  start_ns,
  dur_ns,
  correlation,
  launch_id,
  launch_op.op_id,
  step,
  graph_id,
  graph_node_id,
  grid,
  block,
  registers,
  shared_memory,
  bytes,
  external_id,
  coalesce(flaw, CASE WHEN start_ns + $skew_ns < launch_ns THEN 'before launch' END) AS flaw
FROM raw_device JOIN raw_link USING (kernel_id) LEFT JOIN launch_op USING (launch_id);

INSERT INTO step BY NAME
SELECT
  $trace_id AS trace_id,
  step,
  name,
  thread,
  start_ns,
  dur_ns,
  greatest(start_ns + dur_ns, coalesce(last_end_ns, start_ns)) - start_ns AS window_ns
FROM raw_step
LEFT JOIN (
  SELECT step, max(start_ns + dur_ns) AS last_end_ns
  FROM kernel
  WHERE trace_id = $trace_id
  GROUP BY step
) USING (step)
ORDER BY step;
