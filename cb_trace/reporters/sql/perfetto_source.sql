-- The trace to annotate: the full pass as recorded, rank 0 first.
-- $rank (NULL: any)
SELECT
  trace.trace_id,
  trace.run_id,
  coalesce(
    (SELECT min(figures.deployment) FROM compare AS figures WHERE figures.run_id = trace.run_id),
    'eager'
  ) AS deployment,  -- 'eager' sorts before 'graph'
  trace.path,
  trace.sha256
FROM trace
WHERE trace.role IN ('context', 'foreign') AND ($rank IS NULL OR trace.rank = $rank)
ORDER BY trace.role, trace.rank, trace.trace_id
LIMIT 1
