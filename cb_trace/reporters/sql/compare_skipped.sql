-- Modules that have no measurement alone, and why: one left out in one condition only is not here.
-- $run_id
SELECT DISTINCT module.path, module.class, replay.phase, replay.skipped
FROM replay
JOIN module ON module.module_id = replay.module_id
WHERE replay.run_id = $run_id
  AND replay.skipped IS NOT NULL
  AND NOT EXISTS (
    SELECT 1
    FROM replay AS measured
    WHERE measured.module_id = replay.module_id
      AND measured.phase = replay.phase
      AND measured.condition IN ('hot', 'eager')
      AND measured.median_ns IS NOT NULL
  )
ORDER BY replay.skipped, module.path, replay.phase
