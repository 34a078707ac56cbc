-- What is told of every module, children included but for table partition: what it did in the step,
-- its part of it, and why the module alone differs. Views read these.

CREATE TABLE module_context (
    run_id VARCHAR, module_id INTEGER, phase VARCHAR, calls DOUBLE, kernels DOUBLE,
    kernel_ns BIGINT, busy_ns BIGINT, exposed_ns BIGINT, ts_ns BIGINT, dur_ns BIGINT,
    trace_id INTEGER, thread INTEGER
);
COMMENT ON TABLE module_context IS 'What a module did in context, per step, children included';
COMMENT ON COLUMN module_context.run_id IS 'Recording';
COMMENT ON COLUMN module_context.module_id IS 'Module';
COMMENT ON COLUMN module_context.phase IS 'Phase';
COMMENT ON COLUMN module_context.calls IS 'Calls a step, mean';
COMMENT ON COLUMN module_context.kernels IS 'Device activities a step, mean';
COMMENT ON COLUMN module_context.kernel_ns IS 'Sum of kernel durations (K) a step, ns';
COMMENT ON COLUMN module_context.busy_ns IS 'Union of kernel intervals (U) a step, ns';
COMMENT ON COLUMN module_context.exposed_ns IS
    'Part of U in which no kernel outside the module runs (X) a step, ns';
COMMENT ON COLUMN module_context.ts_ns IS
    'Start of the first call, of a module without one of its first kernel, ns on the trace''s axis';
COMMENT ON COLUMN module_context.dur_ns IS 'Duration of that call or kernel, ns';
COMMENT ON COLUMN module_context.trace_id IS 'Trace of the first call';
COMMENT ON COLUMN module_context.thread IS 'Thread of the first call';

CREATE TABLE graph_context (
    run_id VARCHAR, module_id INTEGER, phase VARCHAR, kernels DOUBLE, kernel_ns BIGINT,
    busy_ns BIGINT, exposed_ns BIGINT
);
COMMENT ON TABLE graph_context IS
    'What a module''s kernels did in the profiled runs of the step''s CUDA graph, per run, children '
    'included; empty where no such runs count';
COMMENT ON COLUMN graph_context.run_id IS 'Recording';
COMMENT ON COLUMN graph_context.module_id IS 'Module';
COMMENT ON COLUMN graph_context.phase IS 'Phase';
COMMENT ON COLUMN graph_context.kernels IS 'Device activities a run, mean';
COMMENT ON COLUMN graph_context.kernel_ns IS 'Sum of kernel durations (K) a run, ns';
COMMENT ON COLUMN graph_context.busy_ns IS 'Union of kernel intervals (U) a run, ns';
COMMENT ON COLUMN graph_context.exposed_ns IS
    'Part of U in which no kernel outside the module runs (X) a run, ns';

CREATE TABLE partition (
    run_id VARCHAR, module_id INTEGER, phase VARCHAR, deployment VARCHAR, kind VARCHAR,
    ns BIGINT, low_ns BIGINT, high_ns BIGINT
);
COMMENT ON TABLE partition IS
    'One part of the step: the self time of a module, by kind; the parts sum to the step';
COMMENT ON COLUMN partition.run_id IS 'Recording';
COMMENT ON COLUMN partition.module_id IS 'Module; NULL for unattributed and profiled_excess';
COMMENT ON COLUMN partition.phase IS 'Phase';
COMMENT ON COLUMN partition.deployment IS
    'eager or graph, the latter by its own kernels where its runs were profiled, else by the eager ones';
COMMENT ON COLUMN partition.kind IS
    'busy, idle_host, idle_gap, idle_sync, idle_copy, unattributed or profiled_excess (at most 0)';
COMMENT ON COLUMN partition.ns IS 'Time a step, ns';
COMMENT ON COLUMN partition.low_ns IS 'Lower bound, ns';
COMMENT ON COLUMN partition.high_ns IS 'Upper bound, ns';

CREATE TABLE cost_bounds (
    run_id VARCHAR, module_id INTEGER, phase VARCHAR, deployment VARCHAR,
    low_ns BIGINT, high_ns BIGINT, idle_low_ns BIGINT, idle_high_ns BIGINT
);
COMMENT ON TABLE cost_bounds IS
    'Within what a module''s cost is known, children included: the sum of each profiled step is '
    'resampled and scaled to the bounds of the bare step; bounds of parts do not add up to these';
COMMENT ON COLUMN cost_bounds.run_id IS 'Recording';
COMMENT ON COLUMN cost_bounds.module_id IS 'Module';
COMMENT ON COLUMN cost_bounds.phase IS 'Phase; step for all of them, where there are several';
COMMENT ON COLUMN cost_bounds.deployment IS 'eager or graph';
COMMENT ON COLUMN cost_bounds.low_ns IS 'Lower bound of the cost, ns';
COMMENT ON COLUMN cost_bounds.high_ns IS 'Upper bound of the cost, ns';
COMMENT ON COLUMN cost_bounds.idle_low_ns IS 'Lower bound of the idle time in it, ns';
COMMENT ON COLUMN cost_bounds.idle_high_ns IS 'Upper bound of the idle time in it, ns';

CREATE TABLE term (
    run_id VARCHAR, module_id INTEGER, phase VARCHAR, deployment VARCHAR, kind VARCHAR,
    ns BIGINT, low_ns BIGINT, high_ns BIGINT
);
COMMENT ON TABLE term IS
    'One term of the difference between isolated and in-context cost, children included';
COMMENT ON COLUMN term.run_id IS 'Recording';
COMMENT ON COLUMN term.module_id IS 'Module';
COMMENT ON COLUMN term.phase IS 'Phase';
COMMENT ON COLUMN term.deployment IS
    'eager or graph, the latter by its own kernels where its runs were profiled, else by the eager ones';
COMMENT ON COLUMN term.kind IS
    'launch, cache, kernel_choice, fusion, overlap, contention, idle or residual';
COMMENT ON COLUMN term.ns IS 'Part of isolated minus cost, ns; NULL where not measured';
COMMENT ON COLUMN term.low_ns IS 'Lower bound, ns';
COMMENT ON COLUMN term.high_ns IS 'Upper bound, ns';

CREATE TABLE verdict (
    run_id VARCHAR, module_id INTEGER, phase VARCHAR, deployment VARCHAR, text VARCHAR
);
COMMENT ON TABLE verdict IS
    'One sentence on one module, children included: which number to believe, and why';
COMMENT ON COLUMN verdict.run_id IS 'Recording';
COMMENT ON COLUMN verdict.module_id IS 'Module';
COMMENT ON COLUMN verdict.phase IS 'Phase';
COMMENT ON COLUMN verdict.deployment IS 'eager or graph';
COMMENT ON COLUMN verdict.text IS 'The sentence';
