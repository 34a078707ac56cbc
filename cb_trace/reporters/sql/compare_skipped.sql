-- Calls that have no measurement alone, and why: one left out in another condition only is not here.
-- $run_id
SELECT DISTINCT module.path, module.class, replay.phase, replay.skipped
FROM replay
JOIN module ON module.module_id = replay.module_id
WHERE replay.run_id = $run_id
  AND replay.skipped IS NOT NULL
  AND (
    replay.condition = 'hot'
    OR NOT EXISTS (
      SELECT 1
      FROM replay AS hot
      WHERE hot.module_id = replay.module_id
        AND hot.phase = replay.phase
        AND hot.call_index = replay.call_index
        AND hot.condition = 'hot'
    )
  )
ORDER BY replay.skipped, module.path, replay.phase
