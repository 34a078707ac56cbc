-- The trace files of one recording.
-- $run_id
SELECT
  role, path, rank, world_size, slices, repaired, dropped, kernels_without_launch,
  span_ns / 1e3 AS span_us
FROM trace
WHERE run_id = $run_id
ORDER BY trace_id
