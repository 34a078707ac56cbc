-- How many rows, the latest start, and whether something is 0 or 1 that hardly ever is: a boolean
-- reads as that. Kineto's device and stream stand in pid and tid as well.
SELECT
  count(*),
  max(start_ns),
  coalesce(bool_or(kind <> 'meta' AND start_ns IN (0, 1000)), FALSE),
  coalesce(bool_or(
    correlation = 1 OR bytes = 1 OR registers = 1 OR graph_id = 1 OR graph_node_id = 1
    OR (kind = 'device' AND (
      (device = 0 AND pid <> '0') OR (device = 1 AND pid <> '1')
      OR (stream = 0 AND tid <> '0') OR (stream = 1 AND tid <> '1')
    ))
  ), FALSE)
FROM raw_part
