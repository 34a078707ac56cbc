-- One block of events read straight into typed columns. Any value of another type fails the read,
-- and the block is read again by source_exact.sql.
-- floor(ts) * 1000 + round((ts - floor(ts)) * 1000) is exact below 2^43 µs; round(ts * 1000) is not.
-- dur is read as text: as a number a JSON boolean would be 0 or 1 µs. ts likewise would cost more
-- than looking for booleans where a ts is 0 or 1 (part_facts.sql).
WITH timed AS (
  SELECT * EXCLUDE (dur), dur IS NOT NULL AS has_dur, TRY_CAST(dur AS DOUBLE) AS dur
  FROM read_json(
    $files,
    format = 'array',
    columns = {
      ph: 'VARCHAR', cat: 'VARCHAR', name: 'VARCHAR', pid: 'VARCHAR', tid: 'VARCHAR',
      ts: 'DOUBLE', dur: 'VARCHAR',
      args: 'STRUCT(
        "External id" BIGINT, correlation BIGINT, "Sequence number" BIGINT, "Fwd thread id" BIGINT,
        "Python id" BIGINT, "Python parent id" BIGINT, device INTEGER, stream BIGINT,
        grid VARCHAR, block VARCHAR, "registers per thread" INTEGER, "shared memory" BIGINT,
        bytes BIGINT, "graph id" BIGINT, "graph node id" BIGINT, name VARCHAR,
        kernel VARCHAR
      )'
    }
  )
)
SELECT
  ph,
  cat,
  name,
  pid,
  tid,
  CASE
    WHEN isfinite(ts) AND abs(ts) < 4e15
      THEN CAST(floor(ts) AS BIGINT) * 1000 + CAST(round((ts - floor(ts)) * 1000) AS BIGINT)
  END AS start_ns,
  CASE
    WHEN dur IS NULL OR NOT isfinite(dur) THEN NULL
    WHEN abs(dur) < 4e15
      THEN CAST(floor(dur) AS BIGINT) * 1000 + CAST(round((dur - floor(dur)) * 1000) AS BIGINT)
    WHEN dur < 0 THEN -4000000000000000000
    ELSE 4000000000000000000
  END AS dur_ns,
  has_dur,
  args."External id" AS external_id,
  args.correlation,
  args."Sequence number" AS sequence_number,
  args."Fwd thread id" AS forward_thread,
  args."Python id" AS python_id,
  args."Python parent id" AS python_parent_id,
  args.device,
  args.stream,
  args.grid,
  args.block,
  args."registers per thread" AS registers,
  args."shared memory" AS shared_memory,
  args.bytes,
  args."graph id" AS graph_id,
  args."graph node id" AS graph_node_id,
  args.name AS label,
  args.kernel AS kernel_name,
  0 AS unusable
FROM timed
