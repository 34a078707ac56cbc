-- The recordings of a profile, the one to show first: the lowest rank, then the newest.
-- $rank (NULL: any)
SELECT
  run.run_id, run.workload, run.mode, run.dtype, run.device_name, run.torch_version,
  run.created_at, run.step_bare_ns, run.step_bare_low_ns, run.step_bare_high_ns,
  run.step_profiled_ns, run.dilation, min(trace.rank) AS rank
FROM run
LEFT JOIN trace ON trace.run_id = run.run_id
GROUP BY ALL
HAVING $rank IS NULL OR min(trace.rank) = $rank
ORDER BY min(trace.rank) NULLS LAST, run.created_at DESC NULLS LAST, run.run_id
