-- The step once over: what kinds of time it is made of. The parts sum to the bare step.
-- $run_id, $deployment
WITH part AS (
  SELECT
    CASE
      WHEN partition.kind <> 'busy' THEN partition.kind
      WHEN EXISTS (
        FROM module AS child WHERE child.parent_id = partition.module_id
      ) THEN 'glue'
      ELSE 'modules'
    END AS kind,
    partition.ns
  FROM partition
  WHERE partition.run_id = $run_id AND partition.deployment = $deployment
)
SELECT kind, sum(ns)::BIGINT AS ns
FROM part
GROUP BY kind
HAVING sum(ns) <> 0 OR kind IN ('modules', 'glue', 'unattributed')
ORDER BY list_position(
  [
    'modules', 'glue', 'idle_host', 'idle_gap', 'idle_sync', 'idle_copy', 'unattributed',
    'profiled_excess'
  ],
  kind
)
