-- Which device time could be given to no module, and why?
--
-- Columns:
--   role    what the trace is of: context, sequence, graph or foreign
--   rank    rank of the trace
--   reason  why no module was found
--   phase   phase of the work, where known
--   events  device activities
--   us      their device time, µs
--   share   part of the device time of the trace, ratio
-- No rows: all device time was given to modules.
--
-- Example:
--   duckdb -readonly profile.duckdb -f queries/unattributed.sql
SELECT role, rank, reason, phase, events, us, share
FROM coverage
WHERE status = 'unattributed'
ORDER BY us DESC, role, rank, reason, phase;
