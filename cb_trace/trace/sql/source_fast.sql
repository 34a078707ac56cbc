-- One block of events read straight into typed columns. Any value of another type fails the read,
-- and the block is read again by source_exact.sql.
-- floor(ts) * 1000 + round((ts - floor(ts)) * 1000) is exact below 2^43 µs; round(ts * 1000) is not.
-- dur and the identifiers that count from 1 are read as text: as a number a JSON boolean would be 0
-- or 1. The rest likewise would cost more than looking for booleans where one of them is 0 or 1
-- (part_facts.sql).
WITH timed AS (
  SELECT * EXCLUDE (dur), dur IS NOT NULL AS has_dur, TRY_CAST(dur AS DOUBLE) AS dur
  FROM read_json(
    $files,
    format = 'array',
    columns = {
      ph: 'VARCHAR', cat: 'VARCHAR', name: 'VARCHAR', pid: 'VARCHAR', tid: 'VARCHAR',
      ts: 'DOUBLE', dur: 'VARCHAR',
      args: 'STRUCT(
        "External id" VARCHAR, correlation BIGINT, "Sequence number" VARCHAR,
        "Fwd thread id" VARCHAR, "Python id" VARCHAR, "Python parent id" VARCHAR,
        device INTEGER, stream BIGINT,
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
  TRY_CAST(args."External id" AS BIGINT) AS external_id,
  args.correlation,
  TRY_CAST(args."Sequence number" AS BIGINT) AS sequence_number,
  TRY_CAST(args."Fwd thread id" AS BIGINT) AS forward_thread,
  TRY_CAST(args."Python id" AS BIGINT) AS python_id,
  TRY_CAST(args."Python parent id" AS BIGINT) AS python_parent_id,
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
  CAST(args."External id" IS NOT NULL AND external_id IS NULL AS INTEGER)
    + CAST(args."Sequence number" IS NOT NULL AND sequence_number IS NULL AS INTEGER)
    + CAST(args."Fwd thread id" IS NOT NULL AND forward_thread IS NULL AS INTEGER)
    + CAST(args."Python id" IS NOT NULL AND python_id IS NULL AS INTEGER)
    + CAST(args."Python parent id" IS NOT NULL AND python_parent_id IS NULL AS INTEGER)
    AS unusable
FROM timed
