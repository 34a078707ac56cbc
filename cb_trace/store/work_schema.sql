-- Counted work, held memory, and the ceilings that modules are held against. docs/counting.md says
-- what is counted.

CREATE TABLE cost (
    run_id VARCHAR, module_id INTEGER, phase VARCHAR, call_index INTEGER, calls INTEGER,
    flops BIGINT, flops_extended BIGINT, dtype VARCHAR, dtype_ratio DOUBLE,
    uncounted_ops BIGINT, bytes_compulsory BIGINT, bytes_requested BIGINT
);
COMMENT ON TABLE cost IS
    'Work of one call of a module, children included, counted on an uncompiled step';
COMMENT ON COLUMN cost.run_id IS 'Recording';
COMMENT ON COLUMN cost.module_id IS 'Module';
COMMENT ON COLUMN cost.phase IS 'forward, backward, recompute or optimizer';
COMMENT ON COLUMN cost.call_index IS
    'First such call within the step, from 0; -1 for what ran outside every call (the root''s)';
COMMENT ON COLUMN cost.calls IS 'Calls a step with just these figures';
COMMENT ON COLUMN cost.flops IS
    'FLOPs a call that torch''s counter knows: 2mnk, causal attention in full, no bias, no softmax';
COMMENT ON COLUMN cost.flops_extended IS
    'FLOPs a call with elementwise work, norms, softmax and embedding bags, causal attention halved';
COMMENT ON COLUMN cost.dtype IS 'Precision of most of flops: bf16, fp16, tf32, fp32, fp8, …';
COMMENT ON COLUMN cost.dtype_ratio IS 'Part of flops in that precision, ratio';
COMMENT ON COLUMN cost.uncounted_ops IS 'Calls of operators that no formula covers, a call';
COMMENT ON COLUMN cost.bytes_compulsory IS
    'Bytes a call that must cross the module''s border once: inputs, weights, distinct rows, outputs';
COMMENT ON COLUMN cost.bytes_requested IS
    'Bytes a call that its operators ask for one by one, every row in sectors of 32 bytes';

CREATE TABLE uncounted_op (
    run_id VARCHAR, module_id INTEGER, phase VARCHAR, name VARCHAR, calls BIGINT, kernel_ns BIGINT
);
COMMENT ON TABLE uncounted_op IS
    'One operator that no FLOP formula covers, in a module and those below it';
COMMENT ON COLUMN uncounted_op.run_id IS 'Recording';
COMMENT ON COLUMN uncounted_op.module_id IS 'Module';
COMMENT ON COLUMN uncounted_op.phase IS 'Phase';
COMMENT ON COLUMN uncounted_op.name IS 'Operator as in a trace';
COMMENT ON COLUMN uncounted_op.calls IS 'Calls a step';
COMMENT ON COLUMN uncounted_op.kernel_ns IS
    'Duration of the kernels launched inside it a step, as profiled, ns';

CREATE TABLE memory (
    run_id VARCHAR, module_id INTEGER, phase VARCHAR, scope VARCHAR, peak_bytes BIGINT,
    saved_for_backward_bytes BIGINT, output_bytes BIGINT
);
COMMENT ON TABLE memory IS 'Bytes that a module needs while it runs, children included';
COMMENT ON COLUMN memory.run_id IS 'Recording';
COMMENT ON COLUMN memory.module_id IS 'Module';
COMMENT ON COLUMN memory.phase IS 'Phase';
COMMENT ON COLUMN memory.scope IS 'context (in the step) or isolated (alone)';
COMMENT ON COLUMN memory.peak_bytes IS
    'Most bytes in use above those at the begin of the call, of its largest call; on the CPU bytes '
    'of tensors, on CUDA of the allocator';
COMMENT ON COLUMN memory.saved_for_backward_bytes IS
    'Bytes of activations that all its calls in a step keep for the backward';
COMMENT ON COLUMN memory.output_bytes IS 'Bytes of the outputs of its largest call';

CREATE TABLE ceiling (
    run_id VARCHAR, source VARCHAR, kind VARCHAR, dtype VARCHAR, shape VARCHAR, value DOUBLE,
    unit VARCHAR, chosen BOOLEAN
);
COMMENT ON TABLE ceiling IS
    'What the device can do at best: measured on it, or by the datasheet of a device we know';
COMMENT ON COLUMN ceiling.run_id IS 'Recording';
COMMENT ON COLUMN ceiling.source IS 'measured, or the datasheet';
COMMENT ON COLUMN ceiling.kind IS
    'matmul, copy, triad, memory (datasheet), empty_event_pair, eager_op or graph_kernel';
COMMENT ON COLUMN ceiling.dtype IS 'Precision of a matmul; datasheet figures are the dense ones';
COMMENT ON COLUMN ceiling.shape IS 'm×n×k of a matmul, buffer of a copy';
COMMENT ON COLUMN ceiling.value IS 'Figure, in unit';
COMMENT ON COLUMN ceiling.unit IS 'flop/s, byte/s or ns';
COMMENT ON COLUMN ceiling.chosen IS 'Whether it is the best of its kind and dtype';

CREATE TABLE kernel_class (
    run_id VARCHAR, module_id INTEGER, phase VARCHAR, kernel_ns BIGINT, communication_ns BIGINT,
    short_ns BIGINT
);
COMMENT ON TABLE kernel_class IS
    'Kernel time of a module by what it says about the bound, per step, as profiled';
COMMENT ON COLUMN kernel_class.run_id IS 'Recording';
COMMENT ON COLUMN kernel_class.module_id IS 'Module';
COMMENT ON COLUMN kernel_class.phase IS 'Phase';
COMMENT ON COLUMN kernel_class.kernel_ns IS 'All kernels (K), ns';
COMMENT ON COLUMN kernel_class.communication_ns IS 'Kernels of collectives, ns';
COMMENT ON COLUMN kernel_class.short_ns IS
    'Kernels under 5 us, or of fewer blocks than the device has multiprocessors, ns';

CREATE TABLE overhead (
    run_id VARCHAR, kind VARCHAR, name VARCHAR, launches BIGINT, boundaries BIGINT, count BIGINT,
    measured BIGINT, profiled DOUBLE, value DOUBLE, low DOUBLE, high DOUBLE, unit VARCHAR
);
COMMENT ON TABLE overhead IS
    'What the host takes around and within operators: medians over the recorded steps of an eager '
    'run, by outermost operator';
COMMENT ON COLUMN overhead.run_id IS 'Recording';
COMMENT ON COLUMN overhead.kind IS
    'T1 (between operators), T2 (start to first launch), T3 (last launch to end), T4 (the launch '
    'call), T5 (between launches, or all of an operator that launches nothing)';
COMMENT ON COLUMN overhead.name IS
    'Operator; the launch call where it is outside all; NULL for T1';
COMMENT ON COLUMN overhead.launches IS 'Kernels that the operator launches; NULL for T1 and T4';
COMMENT ON COLUMN overhead.boundaries IS
    'Calls of modules that begin or end in the gap; NULL but for T1';
COMMENT ON COLUMN overhead.count IS 'How many were seen';
COMMENT ON COLUMN overhead.measured IS
    'Of them in modules that the host bounds alone, whose bare wall is host time; where there are '
    'any, value, low and high are theirs, else they follow from the host ratio of the recording';
COMMENT ON COLUMN overhead.profiled IS 'Median under the profiler, in unit';
COMMENT ON COLUMN overhead.value IS
    'Median without a profiler, in unit: times the factor of the modules they were seen in, which '
    'is bare wall alone over time under the profiler';
COMMENT ON COLUMN overhead.low IS 'Lower quartile of value, in unit';
COMMENT ON COLUMN overhead.high IS 'Upper quartile of value, in unit';
COMMENT ON COLUMN overhead.unit IS 'ns';

CREATE TABLE host_span (
    run_id VARCHAR, module_id INTEGER, calls BIGINT, ns BIGINT, low_ns BIGINT, high_ns BIGINT,
    samples INTEGER, dropped INTEGER
);
COMMENT ON TABLE host_span IS
    'What the host takes for one module in the bare eager step: from the start of its forward to '
    'its return, by a clock around it and without a profiler; forwards of other modules in it left '
    'out';
COMMENT ON COLUMN host_span.run_id IS 'Recording';
COMMENT ON COLUMN host_span.module_id IS
    'Module; NULL for the step outside every forward: its own code, backward and optimizer';
COMMENT ON COLUMN host_span.calls IS 'Calls of its forward a step; 1 for the step';
COMMENT ON COLUMN host_span.ns IS
    'Median host time a step, all calls, less what the clocks cost, ns';
COMMENT ON COLUMN host_span.low_ns IS 'Lower bound (95 % bootstrap), ns';
COMMENT ON COLUMN host_span.high_ns IS 'Upper bound (95 % bootstrap), ns';
COMMENT ON COLUMN host_span.samples IS 'Steps it was read in';
COMMENT ON COLUMN host_span.dropped IS 'Steps left out, as the host was slowed';

CREATE TABLE host_window (
    run_id VARCHAR, host_ns BIGINT, closing_ns BIGINT, window_ns BIGINT, empty_ns BIGINT,
    samples INTEGER
);
COMMENT ON TABLE host_window IS
    'The windows, as bare steps are timed in, of the steps that host_span was read in; a row a run';
COMMENT ON COLUMN host_window.run_id IS 'Recording';
COMMENT ON COLUMN host_window.host_ns IS
    'Median time from the start of the step to its return, that of the clocks included, ns';
COMMENT ON COLUMN host_window.closing_ns IS
    'Median time from there until the host was through with closing the window, ns';
COMMENT ON COLUMN host_window.window_ns IS
    'host_ns and by how much the window, on the timer of the device, is longer (median), ns';
COMMENT ON COLUMN host_window.empty_ns IS
    'What is taken off every window of a bare step, and not here: an empty window, ns';
COMMENT ON COLUMN host_window.samples IS 'Steps';

CREATE TABLE host_tour (
    run_id VARCHAR, module_id INTEGER, calls BIGINT, ns BIGINT, low_ns BIGINT, high_ns BIGINT,
    samples INTEGER, dropped INTEGER
);
COMMENT ON TABLE host_tour IS
    'What the host takes for one module in company: innermost modules called alone, one after '
    'another in the order of the step and without the rest of it, so that each finds the caches as '
    'the one before leaves them';
COMMENT ON COLUMN host_tour.run_id IS 'Recording';
COMMENT ON COLUMN host_tour.module_id IS 'Module';
COMMENT ON COLUMN host_tour.calls IS 'Its calls a step, all of them in the tour';
COMMENT ON COLUMN host_tour.ns IS 'Median host time a tour, all calls, ns';
COMMENT ON COLUMN host_tour.low_ns IS 'Lower bound (95 % bootstrap), ns';
COMMENT ON COLUMN host_tour.high_ns IS 'Upper bound (95 % bootstrap), ns';
COMMENT ON COLUMN host_tour.samples IS 'Tours it was read in';
COMMENT ON COLUMN host_tour.dropped IS 'Tours left out, as the host was slowed';

CREATE TABLE parameter (run_id VARCHAR, name VARCHAR, module_id INTEGER, bytes BIGINT);
COMMENT ON TABLE parameter IS
    'A parameter in a module that holds it itself: one that several hold (tied) has a row in each. '
    'Recordings of before this table name the first module alone';
COMMENT ON COLUMN parameter.run_id IS 'Recording';
COMMENT ON COLUMN parameter.name IS 'Path of its first module and its name there';
COMMENT ON COLUMN parameter.module_id IS 'Module';
COMMENT ON COLUMN parameter.bytes IS 'Its bytes';
