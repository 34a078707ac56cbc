-- Step ranges: user annotations, and operators in files of 2021, whose name matches the first of
-- the patterns that matches any. Of nested or overlapping ranges of one process the outermost
-- counts (1 µs of overlap is rounding).
CREATE OR REPLACE TEMP TABLE raw_step AS
WITH named AS (
  SELECT name, thread, start_ns, dur_ns
  FROM annotation
  WHERE trace_id = $trace_id AND layer = 'user'
  UNION ALL
  SELECT name, thread, start_ns, dur_ns
  FROM op
  WHERE trace_id = $trace_id AND prefix(name, 'ProfilerStep#')
),
ranked AS (
  SELECT
    *,
    CASE
      WHEN regexp_matches(name, $pattern_0) THEN 0
      WHEN regexp_matches(name, $pattern_1) THEN 1
      WHEN regexp_matches(name, $pattern_2) THEN 2
    END AS rank
  FROM named
),
range AS (
  SELECT * EXCLUDE (rank) FROM ranked WHERE rank = (SELECT min(rank) FROM ranked)
),
outer_range AS (
  SELECT range.*, pid
  FROM range JOIN raw_track USING (thread)
  QUALIFY coalesce(start_ns + 1000 >= max(start_ns + dur_ns) OVER (
    PARTITION BY pid ORDER BY start_ns, dur_ns DESC, name
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
  ), TRUE)
)
SELECT
  CAST(row_number() OVER (ORDER BY start_ns, pid, dur_ns DESC) - 1 AS INTEGER) AS step,
  name,
  thread,
  start_ns,
  dur_ns,
  -- with one process, its steps hold for every thread and device of the file
  CASE WHEN (SELECT count(DISTINCT pid) FROM outer_range) > 1 THEN pid ELSE '' END AS pid
FROM outer_range;
