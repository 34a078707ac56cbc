-- Modules that were not measured alone, and why.
-- $run_id
SELECT DISTINCT module.path, module.class, replay.phase, replay.skipped
FROM replay
JOIN module ON module.module_id = replay.module_id
WHERE replay.run_id = $run_id AND replay.skipped IS NOT NULL
ORDER BY replay.skipped, module.path, replay.phase
