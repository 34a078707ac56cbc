-- What of the loaded part is unlinked, doubtful or missing, by reason.
SELECT 'no launch in file', count(*), TRY_CAST(sum(dur_ns) AS BIGINT)
FROM kernel
WHERE trace_id = $trace_id AND launch_id IS NULL AND kind <> 'cpu'
UNION ALL
SELECT flaw, count(*), TRY_CAST(sum(dur_ns) AS BIGINT)
FROM kernel
WHERE trace_id = $trace_id AND flaw = 'before launch'
GROUP BY flaw
UNION ALL
-- in no figure of a step (row 26); our own recordings have a row of coverage for it
SELECT 'kernel outside every step', count(*), TRY_CAST(sum(dur_ns) AS BIGINT)
FROM kernel
WHERE
  trace_id = $trace_id AND $role = 'foreign' AND step IS NULL
  AND flaw IS DISTINCT FROM 'lost timing'
  AND EXISTS (SELECT 1 FROM step WHERE trace_id = $trace_id)
UNION ALL
SELECT
  CASE WHEN contains(lower(name), 'graph') THEN 'graph launch without kernel'
  ELSE 'launch without kernel' END AS reason,
  count(*),
  NULL
FROM launch ANTI JOIN (FROM kernel WHERE trace_id = $trace_id) AS own USING (launch_id)
WHERE trace_id = $trace_id AND contains(name, 'Launch') AND NOT contains(name, 'HostFunc')
GROUP BY reason
UNION ALL
SELECT
  CASE kind
    WHEN 'untimed' THEN 'event without a usable time'
    WHEN 'unphased' THEN 'event of no known phase'
    WHEN 'begin' THEN 'begin/end pair not read'
    ELSE 'rows of an accelerator that is not read'
  END AS reason,
  sum(events),
  CASE WHEN kind = 'foreign' THEN TRY_CAST(sum(ns) AS BIGINT) END
FROM raw_total
WHERE kind IN ('untimed', 'unphased', 'begin', 'foreign')
GROUP BY kind
UNION ALL
SELECT 'argument that is no integer', sum(unusable), NULL FROM raw_total
ORDER BY 1
