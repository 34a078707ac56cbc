INSERT INTO kernel BY NAME
SELECT
  kernel_id,
  $trace_id AS trace_id,
  'cpu' AS kind,
  'cpu_op' AS category,
  op.name,
  thread AS stream,
  thread,
  raw_stretch.start_ns,
  raw_stretch.dur_ns,
  op_id,
  CASE WHEN raw_stretch.start_ns < raw_step.start_ns + raw_step.dur_ns THEN step END AS step,
  op.external_id
FROM raw_stretch
JOIN op USING (op_id)
JOIN raw_track USING (thread)
ASOF LEFT JOIN raw_step
  ON (CASE WHEN $one_process THEN '' ELSE raw_track.pid END) = raw_step.pid
  AND raw_stretch.start_ns >= raw_step.start_ns
ORDER BY kernel_id;
