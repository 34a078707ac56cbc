-- How far is each module from the hardware's limit, and what bounds it?
--
-- Columns:
--   deployment       way of running: eager or graph
--   path             module path; empty for the root
--   class            class name
--   phase            forward, backward, …
--   cost_us          part of the step, children included, µs
--   busy_us          of that, device time, µs
--   gflops           FLOPs a step that torch's counter knows, 10⁹
--   gflops_extended  FLOPs a step with our formulas, 10⁹
--   mb               bytes that must cross the module's border, a step, 10⁶
--   intensity        FLOPs with our formulas over those bytes, FLOP/byte
--   mfu              FLOP/s over the datasheet's dense peak, ratio; NULL where that says nothing
--   of_matmul        FLOP/s over the best matmul measured on the device, ratio
--   of_copy          byte/s over the best copy measured on the device, ratio
--   bound            communication, sync, host, compute, bandwidth or latency; NULL: none is near
--   bound_why        what the bound was told by
--   flag             why a figure is missing or too low
--
-- Variables: n, the number of rows of each deployment (20).
-- No rows: no work was counted, which the recording does.
--
-- Example:
--   duckdb -readonly profile.duckdb -cmd "SET VARIABLE n = 5" -f queries/roofline.sql
SELECT
    deployment,
    path,
    class,
    phase,
    cost_us,
    busy_us,
    flops / 1e9 AS gflops,
    flops_extended / 1e9 AS gflops_extended,
    bytes_compulsory / 1e6 AS mb,
    intensity,
    mfu_ratio AS mfu,
    matmul_ratio AS of_matmul,
    copy_ratio AS of_copy,
    bound,
    bound_why,
    flag
FROM roofline
QUALIFY row_number() OVER (
    PARTITION BY run_id, deployment ORDER BY cost_us DESC NULLS LAST, path, phase
) <= coalesce(getvariable('n'), 20)
ORDER BY run_id, deployment, cost_us DESC NULLS LAST, path, phase;
