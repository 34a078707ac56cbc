-- Module calls of one trace with the figures of their module, parents before children.
-- $trace_id, $run_id, $deployment
SELECT
  call.call_id,
  call.parent_call_id,
  call.step,
  call.call_index,
  call.phase,
  call.start_ns,
  call.dur_ns,
  module.path,
  module.class,
  module.depth,
  figures.* EXCLUDE (run_id, deployment, path, class, phase, ts_ns, dur_ns),
  NOT EXISTS (
    FROM module_call AS child WHERE child.parent_call_id = call.call_id
  ) AS is_leaf
FROM module_call AS call
JOIN module ON module.module_id = call.module_id
LEFT JOIN compare AS figures
  ON figures.run_id = $run_id
  AND figures.deployment = $deployment
  AND figures.path = module.path
  AND figures.phase = call.phase
WHERE call.trace_id = $trace_id
ORDER BY module.depth, call.start_ns, call.dur_ns DESC, call.call_id
