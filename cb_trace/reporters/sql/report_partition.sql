-- The step split once: self time of each module by kind.
-- $run_id
SELECT deployment, path, phase, kind, us
FROM step_partition
WHERE run_id = $run_id AND us <> 0
