-- Every row of compare for one recording and deployment, with its place in the module tree and
-- the interval of its isolated figure.
-- $run_id, $deployment
WITH interval AS (
  SELECT
    replay.module_id,
    replay.phase,
    sum(measured.low_ns * replay.calls) / 1000 AS isolated_low_us,
    sum(measured.high_ns * replay.calls) / 1000 AS isolated_high_us
  FROM replay
  JOIN replay AS measured ON measured.replay_id = replay.measured_id
  WHERE replay.run_id = $run_id AND replay.condition = 'hot'
  GROUP BY replay.module_id, replay.phase
)
SELECT
  figures.*,
  parent.path AS parent_path,
  interval.isolated_low_us,
  interval.isolated_high_us
FROM compare AS figures
JOIN module ON module.run_id = figures.run_id AND module.path = figures.path
LEFT JOIN module AS parent ON parent.module_id = module.parent_id
LEFT JOIN interval
  ON interval.module_id = module.module_id AND interval.phase = figures.phase
WHERE figures.run_id = $run_id AND figures.deployment = $deployment
ORDER BY module.ordinal, figures.phase
