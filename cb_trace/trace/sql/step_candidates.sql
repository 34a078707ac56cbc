-- What step.sql chooses from: how many names there are, and those that come first.
WITH named AS (
  SELECT name, start_ns
  FROM annotation
  WHERE trace_id = $trace_id AND layer = 'user'
  UNION ALL
  SELECT name, start_ns
  FROM op
  WHERE trace_id = $trace_id AND prefix(name, 'ProfilerStep#')
),
candidate AS (
  SELECT name, min(start_ns) AS first_ns FROM named WHERE name IS NOT NULL GROUP BY name
)
SELECT count(*), list(name ORDER BY first_ns, name)[:$shown] FROM candidate
