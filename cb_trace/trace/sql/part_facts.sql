-- How many rows, the latest start, and how many times are 0 or 1 µs: a JSON boolean reads as that.
SELECT
  count(*),
  max(start_ns),
  count(*) FILTER (WHERE start_ns IN (0, 1000) OR (has_dur AND dur_ns IN (0, 1000)))
FROM raw_part
