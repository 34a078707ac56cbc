-- Which deployments and phases of one recording have figures.
-- $run_id
SELECT DISTINCT deployment, phase
FROM compare
WHERE run_id = $run_id
ORDER BY
  list_position(['eager', 'graph'], deployment),
  list_position(['step', 'forward', 'backward', 'recompute', 'optimizer'], phase)
