-- The final rows of kernel: links, steps, flaws. A step is given by the launch, else by the
-- kernel's own start; steps of one process do not overlap, so the last one begun is the one.
INSERT INTO kernel
WITH moment AS (
  SELECT
    raw_device.*,
    raw_link.launch_id,
    coalesce(launch_ns, raw_device.start_ns) AS at_ns,
    launch_ns,
    CASE WHEN (SELECT any_value(pid) FROM raw_step) = '' THEN '' ELSE raw_track.pid END AS step_pid
  FROM raw_device
  JOIN raw_link USING (kernel_id)
  JOIN raw_track ON raw_track.thread = coalesce(raw_link.launch_thread, raw_device.thread)
)
SELECT
  kernel_id,
  $trace_id,
  CASE
    WHEN lower(category) IN ('gpu_memcpy', 'memcpy') THEN 'memcpy'
    WHEN lower(category) IN ('gpu_memset', 'memset') THEN 'memset'
    WHEN category IS NULL AND prefix(moment.name, 'Memcpy') THEN 'memcpy'
    WHEN category IS NULL AND prefix(moment.name, 'Memset') THEN 'memset'
    ELSE 'kernel'
  END,
  category,
  moment.name,
  device,
  stream,
  moment.thread,
  moment.start_ns,
  moment.dur_ns,
  correlation,
  moment.launch_id,
  launch_op.op_id,
  CASE
    WHEN flaw IS DISTINCT FROM 'lost timing' AND at_ns < raw_step.start_ns + raw_step.dur_ns
      THEN step
  END,
  graph_id,
  graph_node_id,
  grid,
  block,
  registers,
  shared_memory,
  bytes,
  external_id,
  coalesce(flaw, CASE WHEN moment.start_ns + $skew_ns < launch_ns THEN 'before launch' END)
FROM moment
LEFT JOIN launch_op ON moment.launch_id = launch_op.launch_id
ASOF LEFT JOIN raw_step ON moment.step_pid = raw_step.pid AND at_ns >= raw_step.start_ns
ORDER BY kernel_id;

INSERT INTO step
SELECT
  $trace_id,
  step,
  name,
  thread,
  start_ns,
  dur_ns,
  greatest(start_ns + dur_ns, coalesce(last_end_ns, start_ns)) - start_ns
FROM raw_step
LEFT JOIN (
  SELECT step, max(start_ns + dur_ns) AS last_end_ns
  FROM kernel
  WHERE trace_id = $trace_id
  GROUP BY step
) USING (step)
ORDER BY step;
