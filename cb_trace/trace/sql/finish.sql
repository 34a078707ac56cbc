INSERT INTO launch
SELECT
  raw_launch.launch_id, $trace_id, category, name, thread, start_ns, dur_ns, correlation, op_id,
  kernel_name, grid, block
FROM raw_launch LEFT JOIN launch_op USING (launch_id);

INSERT INTO thread
WITH label AS (
  SELECT name, pid, tid, min(label) AS label FROM raw_meta GROUP BY name, pid, tid
),
process AS (
  SELECT pid, min(label) AS label FROM label WHERE name = 'process_name' GROUP BY pid
)
SELECT thread, $trace_id, raw_track.pid, raw_track.tid, label.label, process.label
FROM raw_track
LEFT JOIN label
  ON label.name = 'thread_name' AND raw_track.pid = label.pid AND raw_track.tid = label.tid
LEFT JOIN process ON raw_track.pid = process.pid
ORDER BY thread;
