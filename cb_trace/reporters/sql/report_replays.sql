-- How much was measured alone, by condition.
-- $run_id
SELECT
  condition,
  count(*) FILTER (WHERE skipped IS NULL AND measured_id = replay_id) AS measured,
  count(*) FILTER (WHERE skipped IS NULL AND measured_id <> replay_id) AS shared,
  count(*) FILTER (WHERE skipped IS NOT NULL) AS skipped,
  sum(samples) FILTER (WHERE measured_id = replay_id)::BIGINT AS samples,
  sum((to_json(replay) ->> 'dropped')::INTEGER)
    FILTER (WHERE measured_id = replay_id)::BIGINT AS throttled
FROM replay
WHERE run_id = $run_id
GROUP BY condition
ORDER BY list_position(['hot', 'cold', 'graph'], condition)
