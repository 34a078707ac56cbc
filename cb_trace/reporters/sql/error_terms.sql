-- The terms of the error with their intervals, NULL where not measured: of one module, or of all.
-- $run_id, $deployment, $phase, $path (NULL: all)
SELECT
  module.path, term.kind,
  term.ns / 1e3 AS us, term.low_ns / 1e3 AS low_us, term.high_ns / 1e3 AS high_us
FROM term
JOIN module ON module.module_id = term.module_id
WHERE term.run_id = $run_id
  AND term.deployment = $deployment
  AND term.phase = $phase
  AND coalesce(module.path = $path, TRUE)
