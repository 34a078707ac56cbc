-- Where device time went, and what happened to events on the way in.
-- $run_id
SELECT role, rank, status, phase, method, reason, events, us, share, flaw_ns / 1e3 AS flaw_us
FROM coverage
WHERE run_id = $run_id
ORDER BY trace_id, status, us DESC NULLS LAST, reason
