UPDATE raw_device
SET flaw = CASE
  WHEN $is_lost AND start_ns = 0 THEN 'lost timing'
  WHEN dur_ns < 0 THEN 'negative duration'
  ELSE 'overflowing duration'
END
WHERE flaw IS NULL AND (($is_lost AND start_ns = 0) OR dur_ns NOT BETWEEN 0 AND $limit);
