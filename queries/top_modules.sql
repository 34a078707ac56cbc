-- Which modules cost the step most by themselves, children left out?
--
-- Columns:
--   rank         rank of the recording
--   deployment   way of running: eager or graph
--   path         module path; empty for the root, whose own time holds glue and idle
--   class        class name
--   phase        forward, backward, …
--   self_us      part of the step that the module itself owns, busy and idle, µs
--   busy_us      of that, busy, µs
--   idle_us      of that, idle, µs
--   share        part of the step, ratio
--
-- Variables: n, the number of rows of each rank and deployment (20).
-- Reads the table trace for the rank.
-- No rows: no module is named in the trace.
--
-- Example:
--   duckdb -readonly profile.duckdb -cmd "SET VARIABLE n = 5" -f queries/top_modules.sql
WITH self_time AS (
    SELECT
        run_id,
        deployment,
        path,
        class,
        phase,
        sum(us) AS self_us,
        coalesce(sum(us) FILTER (WHERE kind = 'busy'), 0) AS busy_us,
        coalesce(sum(us) FILTER (WHERE kind LIKE 'idle%'), 0) AS idle_us,
        sum(share) AS share
    FROM step_partition
    WHERE path IS NOT NULL
    GROUP BY ALL
), ranked AS (
    SELECT run_id, min(rank) AS rank FROM trace GROUP BY run_id
)
SELECT rank, deployment, path, class, phase, self_us, busy_us, idle_us, share
FROM self_time
LEFT JOIN ranked USING (run_id)
QUALIFY row_number() OVER (PARTITION BY run_id, deployment ORDER BY self_us DESC, path, phase)
    <= coalesce(getvariable('n'), 20)
ORDER BY rank, run_id, deployment, self_us DESC, path, phase;
