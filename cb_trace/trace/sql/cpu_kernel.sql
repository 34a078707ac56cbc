INSERT INTO kernel
SELECT
  kernel_id,
  $trace_id,
  'cpu',
  'cpu_op',
  op.name,
  NULL,
  thread,
  thread,
  raw_stretch.start_ns,
  raw_stretch.dur_ns,
  NULL,
  NULL,
  op_id,
  CASE WHEN raw_stretch.start_ns < raw_step.start_ns + raw_step.dur_ns THEN step END,
  NULL, NULL, NULL, NULL, NULL, NULL, NULL,
  op.external_id,
  NULL
FROM raw_stretch
JOIN op USING (op_id)
JOIN raw_track USING (thread)
ASOF LEFT JOIN raw_step
  ON (CASE WHEN $one_process THEN '' ELSE raw_track.pid END) = raw_step.pid
  AND raw_stretch.start_ns >= raw_step.start_ns
ORDER BY kernel_id;
