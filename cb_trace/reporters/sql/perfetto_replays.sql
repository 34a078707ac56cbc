-- The hot replay that stands for each module call of one trace's first step: the one captured at
-- this call, else at the last call before it that was captured.
-- $trace_id, $run_id
WITH first_step AS (
  SELECT call.*
  FROM module_call AS call
  WHERE call.trace_id = $trace_id
    AND call.step IS NOT DISTINCT FROM (
      SELECT min(step) FROM module_call WHERE trace_id = $trace_id
    )
),
hot AS (
  SELECT * FROM replay WHERE run_id = $run_id AND condition = 'hot'
)
SELECT
  call.start_ns AS call_start_ns,
  module.path,
  module.class,
  module.depth,
  measured.replay_id,
  measured.median_ns,
  measured.low_ns,
  measured.high_ns,
  measured.samples
FROM first_step AS call
ASOF JOIN hot
  ON hot.module_id = call.module_id
  AND hot.phase = call.phase
  AND hot.call_index <= call.call_index
JOIN replay AS measured ON measured.replay_id = hot.measured_id
JOIN module ON module.module_id = call.module_id
WHERE measured.median_ns IS NOT NULL
ORDER BY module.depth, call.start_ns, call.call_id
