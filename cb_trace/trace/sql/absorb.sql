-- Sort one part's rows into their tables. Identifiers go on from the largest so far, in the order
-- of the file (with gaps: the rows of the other tables).
INSERT INTO raw_track
SELECT
  $first_thread + (SELECT count(*) FROM raw_track)
    + row_number() OVER (ORDER BY min(raw_part.rowid)) - 1,
  pid,
  tid
FROM raw_part
WHERE kind IN ('op', 'launch', 'device', 'frame', 'annotation')
GROUP BY pid, tid
HAVING (pid, tid) NOT IN (SELECT (pid, tid) FROM raw_track);

INSERT INTO op
SELECT
  $first_op + $rows_before + raw_part.rowid,
  $trace_id,
  trim(name),
  thread,
  start_ns,
  dur_ns,
  external_id,
  sequence_number,
  forward_thread
FROM raw_part JOIN raw_track USING (pid, tid)
WHERE kind = 'op';

INSERT INTO annotation
SELECT
  $first_annotation + $rows_before + raw_part.rowid,
  $trace_id,
  CASE WHEN cat = 'user_annotation' THEN 'user' ELSE 'gpu' END,
  name,
  thread,
  start_ns,
  dur_ns
FROM raw_part JOIN raw_track USING (pid, tid)
WHERE kind = 'annotation';

INSERT INTO raw_launch
SELECT
  $first_launch + $rows_before + raw_part.rowid,
  cat,
  name,
  thread,
  start_ns,
  dur_ns,
  CASE WHEN correlation <> 0 THEN correlation END
FROM raw_part JOIN raw_track USING (pid, tid)
WHERE kind = 'launch';

INSERT INTO raw_device
SELECT
  $first_kernel + $rows_before + raw_part.rowid,
  cat,
  trim(name),
  coalesce(device, TRY_CAST(pid AS INTEGER)),
  coalesce(stream, TRY_CAST(regexp_extract(tid, '^(?:stream )?(-?\d+)$', 1) AS BIGINT)),
  thread,
  start_ns,
  dur_ns,
  CASE WHEN correlation <> 0 THEN correlation END,
  nullif(graph_id, 0),
  nullif(graph_node_id, 0),
  nullif(regexp_extract(translate(grid, '[] ', ''), '^\d+,\d+,\d+$'), ''),
  nullif(regexp_extract(translate(block, '[] ', ''), '^\d+,\d+,\d+$'), ''),
  registers,
  shared_memory,
  bytes,
  external_id,
  CASE WHEN NOT has_dur THEN 'missing duration' END
FROM raw_part JOIN raw_track USING (pid, tid)
WHERE kind = 'device';

INSERT INTO raw_frame
SELECT thread, python_id, python_parent_id, start_ns, dur_ns, substr(name, 12)
FROM raw_part JOIN raw_track USING (pid, tid)
WHERE kind = 'frame';

INSERT INTO raw_meta
SELECT name, pid, tid, label
FROM raw_part
WHERE kind = 'meta' AND name IN ('process_name', 'thread_name');

INSERT INTO raw_total
SELECT
  kind,
  count(*),
  TRY_CAST(sum(dur_ns) FILTER (WHERE dur_ns BETWEEN 0 AND $long_ns) AS BIGINT),
  count(*) FILTER (WHERE NOT has_dur),
  count(*) FILTER (WHERE dur_ns NOT BETWEEN 0 AND $long_ns),
  count(*) FILTER (WHERE start_ns = 0),
  min(start_ns) FILTER (WHERE start_ns <> 0),
  max(start_ns),
  max(start_ns + dur_ns) FILTER (WHERE dur_ns BETWEEN 0 AND $long_ns),
  count(*) FILTER (WHERE start_ns % 1000 <> 0 OR dur_ns % 1000 <> 0)
FROM raw_part
GROUP BY kind;
