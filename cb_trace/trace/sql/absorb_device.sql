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
  CASE WHEN regexp_full_match(grid, '\[\d+, *\d+, *\d+\]') THEN translate(grid, '[] ', '') END,
  CASE WHEN regexp_full_match(block, '\[\d+, *\d+, *\d+\]') THEN translate(block, '[] ', '') END,
  registers,
  shared_memory,
  bytes,
  external_id,
  CASE WHEN NOT has_dur THEN 'missing duration' END
FROM raw_part JOIN raw_track USING (pid, tid)
WHERE kind = 'device';
