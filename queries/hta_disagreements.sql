-- Where does HolisticTraceAnalysis differ from our totals by more than its own rounding?
--
-- Columns:
--   trace       trace file, relative to the profile
--   rank        rank of the trace
--   times       rounded (HTA as it comes: whole microseconds) or unrounded
--   metric      kernels, kernels_with_launch, kernel_time, matched_durations, span, busy or idle
--   unit        count, or us for µs
--   ours        our figure
--   hta         the figure of HTA
--   difference  hta less ours
--   bound       largest difference that rounding explains
--   reason      what separates HTA's device events from ours; NULL where the figures agree
--
-- Variables: everything, 1 to list the figures that agree as well (0).
-- No rows: the two agree, or 'cb-trace hta' has not asked HTA yet.
--
-- Example:
--   duckdb -readonly profile.duckdb -cmd "SET VARIABLE everything = 1" -f queries/hta_disagreements.sql
WITH figure AS (
    SELECT
        *,
        CASE WHEN unit = 'ns' THEN 1000.0 ELSE 1.0 END AS divisor
    FROM hta_check
)

SELECT
    trace.path AS trace,
    trace.rank,
    CASE WHEN figure.rounded THEN 'rounded' ELSE 'unrounded' END AS times,
    figure.metric,
    CASE WHEN figure.unit = 'ns' THEN 'us' ELSE figure.unit END AS unit,
    figure.ours / figure.divisor AS ours,
    figure.hta / figure.divisor AS hta,
    (figure.hta - figure.ours) / figure.divisor AS difference,
    figure.bound / figure.divisor AS bound,
    figure.reason
FROM figure
JOIN trace USING (trace_id)
WHERE NOT figure.agrees OR coalesce(getvariable('everything'), 0) = 1
ORDER BY figure.trace_id, figure.rounded DESC, figure.unit, figure.metric;
