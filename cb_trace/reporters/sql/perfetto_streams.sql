-- Names of the rows on which Perfetto shows a trace's device work, busiest first.
-- $trace_id
SELECT thread.name
FROM kernel
JOIN thread ON thread.thread = kernel.thread
WHERE kernel.trace_id = $trace_id AND kernel.kind <> 'cpu' AND thread.name IS NOT NULL
GROUP BY thread.name
ORDER BY count(*) DESC, thread.name
LIMIT 4
