-- One row a kind of event in this part.
INSERT INTO raw_total
SELECT
  kind,
  count(*),
  TRY_CAST(sum(dur_ns) FILTER (WHERE dur_ns BETWEEN 0 AND $long_ns) AS BIGINT),
  count(*) FILTER (WHERE NOT has_dur),
  count(*) FILTER (WHERE dur_ns NOT BETWEEN 0 AND $long_ns),
  count(*) FILTER (WHERE start_ns = 0),
  min(start_ns) FILTER (WHERE start_ns <> 0),
  max(start_ns),
  max(start_ns + dur_ns) FILTER (WHERE dur_ns BETWEEN 0 AND $long_ns),
  count(*) FILTER (WHERE start_ns % 1000 <> 0 OR dur_ns % 1000 <> 0),
  sum(unusable)
FROM raw_part
GROUP BY kind
RETURNING kind;
