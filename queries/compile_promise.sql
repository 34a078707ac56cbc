-- How much do modules compiled alone promise, and how much does the compiled whole deliver?
--
-- Columns:
--   deployment    eager (launched by the host) or graph
--   phase         forward or backward
--   modules       innermost modules that were measured alone, both ways
--   promise_us    what compiling saves each of them alone, added up, µs
--   eager_us      what they take alone, not compiled, added up, µs
--   whole_us      the whole alone, not compiled, bare wall a step, µs; NULL where not measured
--   step_us       the compiled step, µs
--   delivery_us   whole_us less step_us, µs
--   slower_alone  modules that compiling slows alone and that cost less in the compiled whole
-- No rows: the recorded step was not compiled, or nothing was measured alone.
--
-- Example:
--   duckdb -readonly profile.duckdb -f queries/compile_promise.sql
WITH promised AS (
    SELECT
        deployment,
        phase,
        count(*) FILTER (WHERE innermost) AS modules,
        sum(promise_us) FILTER (WHERE innermost) AS promise_us,
        sum(eager_us) FILTER (WHERE innermost) AS eager_us,
        max(eager_us) FILTER (WHERE path = '') AS whole_us,
        count(*) FILTER (WHERE innermost AND flip = 'slower alone') AS slower_alone
    FROM compile_opportunity
    GROUP BY deployment, phase
), step AS (
    SELECT deployment, phase, cost_us AS step_us FROM compare WHERE path = ''
)
SELECT
    deployment,
    phase,
    modules,
    promise_us,
    eager_us,
    whole_us,
    step_us,
    whole_us - step_us AS delivery_us,
    slower_alone
FROM promised
JOIN step USING (deployment, phase)
ORDER BY deployment, phase;
