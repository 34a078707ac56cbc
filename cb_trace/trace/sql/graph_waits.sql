-- Graph launches and the wait after each: what the host still waits for once the last kernel of the
-- graph has ended is not in the file (traces.md rows 29 and 31). The last of several graphs that one
-- wait is for counts.
CREATE OR REPLACE TEMP TABLE raw_wait AS
WITH graph AS (
  SELECT
    launch.thread,
    launch.start_ns,
    min(kernel.start_ns) AS first_ns,
    max(kernel.start_ns + kernel.dur_ns) AS last_ns
  FROM launch JOIN kernel USING (launch_id)
  WHERE launch.trace_id = $trace_id AND contains(launch.name, 'GraphLaunch')
  GROUP BY launch_id, launch.thread, launch.start_ns
),
wait AS (
  SELECT thread, start_ns, start_ns + dur_ns AS end_ns
  FROM launch
  WHERE trace_id = $trace_id AND contains(name, 'Synchronize') AND dur_ns > $least_ns
)
SELECT
  wait.end_ns,
  max(graph.last_ns) AS last_ns,
  wait.end_ns - greatest(max(graph.last_ns), wait.start_ns) AS ns
FROM graph
ASOF JOIN wait ON graph.thread = wait.thread AND graph.start_ns <= wait.start_ns
GROUP BY wait.thread, wait.start_ns, wait.end_ns
HAVING ns > greatest($least_ns, max(graph.last_ns) - arg_max(graph.first_ns, graph.last_ns));
