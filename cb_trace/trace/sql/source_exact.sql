-- The same columns from a block of any types: everything as text first, numbers by TRY_CAST, times
-- as decimals (exact for epoch microseconds with a fraction where the block has its numbers quoted).
WITH text AS (
  SELECT
    * EXCLUDE (args),
    -- the spelling of 2021; a struct's keys ignore case, so it cannot stand beside the other
    json_extract_string(args, '$."external id"') AS old_external_id,
    from_json(args, '{
      "External id": "VARCHAR", "correlation": "VARCHAR",
      "Sequence number": "VARCHAR", "Fwd thread id": "VARCHAR",
      "Python id": "VARCHAR", "Python parent id": "VARCHAR",
      "device": "VARCHAR", "stream": "VARCHAR", "grid": "VARCHAR", "block": "VARCHAR",
      "registers per thread": "VARCHAR", "shared memory": "VARCHAR", "bytes": "VARCHAR",
      "graph id": "VARCHAR", "graph node id": "VARCHAR", "name": "VARCHAR",
      "kernel": "VARCHAR"
    }') AS args
  FROM read_json(
    $files,
    format = 'array',
    columns = {
      ph: 'VARCHAR', cat: 'VARCHAR', name: 'VARCHAR', pid: 'VARCHAR', tid: 'VARCHAR',
      ts: 'VARCHAR', dur: 'VARCHAR', args: 'JSON'
    }
  )
),
timed AS (
  SELECT
    *,
    TRY_CAST(trim(ts) AS DECIMAL(28, 3)) AS ts_us,
    TRY_CAST(trim(dur) AS DECIMAL(28, 3)) AS dur_us
  FROM text
)
SELECT
  ph,
  cat,
  name,
  pid,
  tid,
  CASE WHEN abs(ts_us) < 4000000000000000 THEN CAST(ts_us * 1000 AS BIGINT) END AS start_ns,
  CASE
    WHEN dur_us IS NOT NULL
      THEN CAST(greatest(least(dur_us, 4000000000000000), -4000000000000000) * 1000 AS BIGINT)
  END AS dur_ns,
  dur IS NOT NULL AS has_dur,
  TRY_CAST(coalesce(args."External id", old_external_id) AS BIGINT) AS external_id,
  TRY_CAST(args.correlation AS BIGINT) AS correlation,
  TRY_CAST(args."Sequence number" AS BIGINT) AS sequence_number,
  TRY_CAST(args."Fwd thread id" AS BIGINT) AS forward_thread,
  TRY_CAST(args."Python id" AS BIGINT) AS python_id,
  TRY_CAST(args."Python parent id" AS BIGINT) AS python_parent_id,
  TRY_CAST(args.device AS INTEGER) AS device,
  TRY_CAST(args.stream AS BIGINT) AS stream,
  args.grid,
  args.block,
  TRY_CAST(args."registers per thread" AS INTEGER) AS registers,
  TRY_CAST(args."shared memory" AS BIGINT) AS shared_memory,
  TRY_CAST(args.bytes AS BIGINT) AS bytes,
  TRY_CAST(args."graph id" AS BIGINT) AS graph_id,
  TRY_CAST(args."graph node id" AS BIGINT) AS graph_node_id,
  args.name AS label,
  args.kernel AS kernel_name,
  -- integers that are none: a boolean, say, or one that needs more than 64 bits
  len(list_filter([
    coalesce(args."External id", old_external_id), args.correlation, args."Sequence number",
    args."Fwd thread id", args."Python id", args."Python parent id", args.device, args.stream,
    args."registers per thread", args."shared memory", args.bytes, args."graph id",
    args."graph node id"
  ], lambda text: text IS NOT NULL AND TRY_CAST(text AS BIGINT) IS NULL)) AS unusable
FROM timed
