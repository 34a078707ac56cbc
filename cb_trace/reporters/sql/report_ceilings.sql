-- What the device can do at best.
-- $run_id
SELECT source, kind, dtype, max(value) AS value, any_value(unit) AS unit
FROM ceiling
WHERE run_id = $run_id AND kind IN ('matmul', 'copy', 'triad', 'memory')
GROUP BY source, kind, dtype
ORDER BY kind, dtype, source
