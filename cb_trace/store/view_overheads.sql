-- Host overheads as people read them.

CREATE VIEW host_overhead AS
SELECT
    run_id,
    kind,
    name,
    launches,
    boundaries,
    count,
    measured,
    value / 1e3 AS value_us,
    low / 1e3 AS low_us,
    high / 1e3 AS high_us,
    profiled / 1e3 AS profiled_us,
    value * count / nullif(sum(value * count) OVER (PARTITION BY run_id), 0) AS share
FROM overhead
ORDER BY run_id, value * count DESC, kind, name, launches, boundaries;
COMMENT ON VIEW host_overhead IS
    'What the host takes around and within operators (T1 to T5), without a profiler';
COMMENT ON COLUMN host_overhead.run_id IS 'Recording';
COMMENT ON COLUMN host_overhead.kind IS
    'T1 (between operators), T2 (start to first launch), T3 (last launch to end), T4 (the launch '
    'call), T5 (between launches, or all of an operator that launches nothing)';
COMMENT ON COLUMN host_overhead.name IS
    'Operator; the launch call where it is outside all; NULL for T1';
COMMENT ON COLUMN host_overhead.launches IS
    'Kernels that the operator launches; NULL for T1 and T4';
COMMENT ON COLUMN host_overhead.boundaries IS
    'Calls of modules that begin or end in the gap; NULL but for T1';
COMMENT ON COLUMN host_overhead.count IS 'How many were seen in the recorded steps';
COMMENT ON COLUMN host_overhead.measured IS
    'Of them in modules that the host bounds alone; the figures are theirs where there are any';
COMMENT ON COLUMN host_overhead.value_us IS 'Median without a profiler, us';
COMMENT ON COLUMN host_overhead.low_us IS 'Lower quartile, us';
COMMENT ON COLUMN host_overhead.high_us IS 'Upper quartile, us';
COMMENT ON COLUMN host_overhead.profiled_us IS 'Median under the profiler, us';
COMMENT ON COLUMN host_overhead.share IS 'Of all the host time listed, ratio';
