-- Which modules have device work that runs beside other work?
--
-- Columns:
--   rank        rank of the recording
--   path        module path; empty for the root
--   class       class name
--   phase       forward, backward, …
--   deployment  way of running that the row is about: eager or graph
--   context_us  sum of kernel durations a step (K), µs
--   busy_us     union of kernel intervals a step (U), µs
--   exposed_us  part of busy_us in which no kernel outside the module runs (X), µs
--   inside_us   context_us less busy_us: the module's kernels beside each other, µs
--   hidden_us   busy_us less exposed_us: beside kernels of other modules, µs
--
-- Those of a graph are of its profiled runs where there are any, else of the profiled step.
-- Reads the table trace for the rank.
-- No rows: no kernel of a module ran beside another.
--
-- Example:
--   duckdb -readonly profile.duckdb -f queries/overlap.sql
WITH ranked AS (
    SELECT run_id, min(rank) AS rank FROM trace GROUP BY run_id
)
SELECT
    rank,
    path,
    class,
    phase,
    deployment,
    context_us,
    busy_us,
    exposed_us,
    context_us - busy_us AS inside_us,
    busy_us - exposed_us AS hidden_us
FROM compare
LEFT JOIN ranked USING (run_id)
WHERE context_us > busy_us OR busy_us > exposed_us
ORDER BY hidden_us + inside_us DESC, rank, path, phase, deployment;
