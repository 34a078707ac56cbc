-- Which modules look most different alone from what they cost in the step?
--
-- Columns:
--   deployment     way of running: eager or graph
--   path           module path; empty for the root
--   class          class name
--   phase          forward, backward, …
--   cost_us        part of the step, children included, µs
--   isolated_us    alone, back to back, bare wall a step, µs
--   error_us       isolated_us less cost_us, µs
--   error_ratio    isolated_us over cost_us, less 1, ratio
--   spread         width of the interval of isolated_us over isolated_us, ratio
--   isolated_from  replay, shared (an identical module) or children (their sum)
--
-- Variables: n, the number of rows of each deployment (20).
-- No rows: nothing was measured alone, in a step that was timed.
--
-- Example:
--   duckdb -readonly profile.duckdb -cmd "SET VARIABLE n = 5" -f queries/isolation_error.sql
SELECT
    deployment,
    path,
    class,
    phase,
    cost_us,
    isolated_us,
    error_us,
    error_ratio,
    spread,
    isolated_from
FROM compare
WHERE error_us IS NOT NULL
QUALIFY row_number() OVER (
    PARTITION BY run_id, deployment ORDER BY abs(error_us) DESC, path, phase
) <= coalesce(getvariable('n'), 20)
ORDER BY run_id, deployment, abs(error_us) DESC, path, phase;
