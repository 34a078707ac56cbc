-- The same where several calls of the file share a correlation id: ranks in one file collide
-- (row 32), or ids come again. A device belongs to the process that alone owns its other ids;
-- of the calls of one process the last before the kernel's start counts, else the first.
CREATE OR REPLACE TEMP TABLE raw_choice AS
WITH call AS (
  SELECT launch_id, correlation, start_ns, thread, pid
  FROM raw_launch JOIN raw_track USING (thread)
  WHERE correlation IS NOT NULL
),
contested AS (
  SELECT correlation FROM call GROUP BY correlation HAVING count(DISTINCT pid) > 1
),
activity AS (
  SELECT kernel_id, correlation, start_ns, pid, correlation IN (FROM contested) AS is_contested
  FROM raw_device JOIN raw_track USING (thread)
),
owner AS (
  SELECT activity.pid, min(call.pid) AS owner_pid
  FROM activity JOIN call USING (correlation)
  WHERE NOT is_contested AND activity.pid NOT IN (SELECT pid FROM call)
  GROUP BY activity.pid
  HAVING count(DISTINCT call.pid) = 1
  UNION ALL
  SELECT DISTINCT pid, pid FROM call
),
candidate AS (
  SELECT kernel_id, launch_id, call.start_ns, thread, call.start_ns > activity.start_ns AS is_late
  FROM activity JOIN call USING (correlation) LEFT JOIN owner ON activity.pid = owner.pid
  WHERE NOT is_contested OR call.pid = owner_pid
),
choice AS (
  SELECT *
  FROM candidate
  QUALIFY row_number() OVER (
    PARTITION BY kernel_id
    ORDER BY is_late, CASE WHEN is_late THEN start_ns ELSE -start_ns END, launch_id
  ) = 1
)
SELECT
  kernel_id,
  launch_id,
  choice.start_ns AS launch_ns,
  choice.thread AS launch_thread,
  is_contested AND launch_id IS NULL AS refused
FROM activity LEFT JOIN choice USING (kernel_id);
