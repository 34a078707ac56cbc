-- One group of blocks as rows: what kind of row each is, and whether its time can be used.
CREATE OR REPLACE TABLE raw_part AS
WITH source AS (
  /*source*/
)
SELECT
  CASE
    WHEN ph = 'M' THEN 'meta'
    WHEN ph = 'B' THEN 'begin'
    WHEN name = 'Record Window End' AND ph <> 'X' THEN 'end'
    WHEN ph IS NULL OR ph <> 'X' THEN 'unphased'
    WHEN start_ns IS NULL OR (has_dur AND dur_ns IS NULL) THEN 'untimed'
    WHEN cat = 'python_function' THEN 'frame'
    WHEN cat IN ('cpu_op', 'Operator') THEN 'op'
    WHEN cat IN ('kernel', 'gpu_memcpy', 'gpu_memset', 'Kernel', 'Memcpy', 'Memset') THEN 'device'
    WHEN suffix(cat, '_runtime') OR suffix(cat, '_driver') OR cat IN ('Runtime', 'Driver')
      THEN 'launch'
    WHEN cat IN ('user_annotation', 'gpu_user_annotation') THEN 'annotation'
    WHEN cat IN ('mtia_ccp_events', 'hpu_op', 'privateuse1', 'privateuse1_op') THEN 'foreign'
    -- the export of torch.autograd.profiler before Kineto has no categories (traces.md row 5)
    WHEN cat IS NULL AND pid = 'CPU functions' THEN 'op'
    WHEN cat IS NULL AND pid = 'CUDA functions' THEN 'device'
    -- device work of a category that is not known yet: counted, not read
    WHEN stream IS NOT NULL AND NOT regexp_matches(coalesce(cat, ''), '_(sync|event)$|^overhead$')
      THEN 'foreign'
    ELSE 'other'
  END AS kind,
  -- what no table keeps is not written
  CASE WHEN cat <> 'python_function' AND cat <> 'cpu_op' THEN cat END AS cat,
  -- names of Python frames are most of a file's text and only those of modules are kept
  CASE WHEN cat = 'python_function' AND NOT prefix(name, 'nn.Module: ') THEN NULL ELSE name END
    AS name,
  coalesce(pid, '') AS pid,
  coalesce(tid, '') AS tid,
  start_ns,
  coalesce(dur_ns, 0) AS dur_ns,
  has_dur,
  * EXCLUDE (ph, cat, name, pid, tid, start_ns, dur_ns, has_dur)
FROM source
WHERE
  ph IN ('X', 'M', 'B')
  OR name = 'Record Window End'
  -- flows, instants, counters and the ends of pairs are no slices; what is none of these is counted
  OR coalesce(ph, '') NOT IN (
    's', 't', 'f', 'i', 'I', 'R', 'C', 'c', 'b', 'n', 'e', 'E', 'S', 'T', 'p', 'F', 'P', 'N', 'O',
    'D', 'V', 'v', 'a'
  );
