-- Kernels of the first profiled call of each measured replay, counted from the first of them.
-- $run_id
SELECT
  played.replay_id,
  kernel.name,
  kernel.start_ns - min(kernel.start_ns) OVER (PARTITION BY played.replay_id) AS offset_ns,
  kernel.dur_ns
FROM replay_kernel AS played
JOIN kernel ON kernel.kernel_id = played.kernel_id
JOIN replay ON replay.replay_id = played.replay_id
WHERE played.iteration = 0 AND replay.condition = 'hot' AND replay.run_id = $run_id
ORDER BY played.replay_id, played.position
