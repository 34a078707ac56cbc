-- One row a kind of event in this part.
INSERT INTO raw_total
SELECT
  kind,
  sum(events),
  TRY_CAST(sum(ns) AS BIGINT),
  sum(no_dur),
  sum(odd_dur),
  sum(zero_ts),
  min(first_ns),
  max(last_start_ns),
  max(last_end_ns),
  sum(fractions),
  sum(unusable)
FROM raw_summary
GROUP BY kind
RETURNING kind;
