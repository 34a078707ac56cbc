-- One row a kind of event and track in this part. Whether something is 0 or 1 that hardly ever is:
-- a boolean reads as that. Kineto's device and stream stand in pid and tid as well.
CREATE OR REPLACE TEMP TABLE raw_summary AS
SELECT
  kind,
  pid,
  tid,
  min(raw_part.rowid) AS first_row,
  count(*) AS events,
  sum(dur_ns) FILTER (WHERE dur_ns BETWEEN 0 AND $long_ns) AS ns,
  count(*) FILTER (WHERE NOT has_dur) AS no_dur,
  count(*) FILTER (WHERE dur_ns NOT BETWEEN 0 AND $long_ns) AS odd_dur,
  count(*) FILTER (WHERE start_ns = 0) AS zero_ts,
  min(start_ns) FILTER (WHERE start_ns <> 0) AS first_ns,
  max(start_ns) AS last_start_ns,
  max(start_ns + dur_ns) FILTER (WHERE dur_ns BETWEEN 0 AND $long_ns) AS last_end_ns,
  count(*) FILTER (WHERE start_ns % 1000 <> 0 OR dur_ns % 1000 <> 0) AS fractions,
  sum(unusable) AS unusable,
  coalesce(bool_or(kind <> 'meta' AND start_ns IN (0, 1000)), FALSE) AS is_low_time,
  coalesce(bool_or(
    correlation = 1 OR bytes = 1 OR registers = 1 OR shared_memory = 1
    OR graph_id = 1 OR graph_node_id = 1
    OR (kind = 'device' AND (
      (device = 0 AND pid <> '0') OR (device = 1 AND pid <> '1')
      OR (stream = 0 AND tid <> '0') OR (stream = 1 AND tid <> '1')
    ))
  ), FALSE) AS is_low_id
FROM raw_part
GROUP BY kind, pid, tid;
