-- How many rows, the latest start, and whether slices start at 0 or 1 µs: a boolean reads as that.
SELECT count(*), max(start_ns), coalesce(bool_or(kind <> 'meta' AND start_ns IN (0, 1000)), FALSE)
FROM raw_part
