-- The same where several calls of the file share a correlation id: ranks in one file collide
-- (row 32), or ids come again. A device belongs to the process that alone owns its other ids;
-- of the calls of one process the last before the kernel's start counts, else the first. No step
-- pairs all calls of an id with all kernels of it: a file may have one id for everything.
CREATE OR REPLACE TEMP TABLE raw_choice AS
WITH call AS (
  SELECT
    correlation, pid, start_ns,
    min(launch_id) AS launch_id,
    arg_min(thread, launch_id) AS thread
  FROM raw_launch JOIN raw_track USING (thread)
  WHERE correlation IS NOT NULL
  GROUP BY correlation, pid, start_ns
),
id AS (
  SELECT correlation, min(pid) AS caller_pid, count(DISTINCT pid) > 1 AS is_contested
  FROM call
  GROUP BY correlation
),
activity AS (
  SELECT
    kernel_id, correlation, start_ns, pid, caller_pid,
    coalesce(is_contested, FALSE) AS is_contested
  FROM raw_device JOIN raw_track USING (thread) LEFT JOIN id USING (correlation)
),
owner AS (
  SELECT pid, min(caller_pid) AS owner_pid
  FROM activity
  WHERE NOT is_contested AND caller_pid IS NOT NULL AND pid NOT IN (SELECT pid FROM call)
  GROUP BY pid
  HAVING count(DISTINCT caller_pid) = 1
  UNION ALL
  SELECT DISTINCT pid, pid FROM call
),
wanted AS (
  SELECT
    kernel_id, correlation, start_ns, is_contested,
    CASE WHEN is_contested THEN owner_pid ELSE caller_pid END AS pid
  FROM activity LEFT JOIN owner USING (pid)
),
earliest AS (
  SELECT
    correlation, pid,
    min(start_ns) AS start_ns,
    arg_min(launch_id, start_ns) AS launch_id,
    arg_min(thread, start_ns) AS thread
  FROM call
  GROUP BY correlation, pid
)
SELECT
  wanted.kernel_id,
  coalesce(before.launch_id, earliest.launch_id) AS launch_id,
  coalesce(before.start_ns, earliest.start_ns) AS launch_ns,
  coalesce(before.thread, earliest.thread) AS launch_thread,
  wanted.is_contested AND earliest.launch_id IS NULL AS refused
FROM wanted
ASOF LEFT JOIN call AS before
  ON wanted.correlation = before.correlation
  AND wanted.pid = before.pid
  AND wanted.start_ns >= before.start_ns
LEFT JOIN earliest
  ON wanted.correlation = earliest.correlation AND wanted.pid = earliest.pid;

