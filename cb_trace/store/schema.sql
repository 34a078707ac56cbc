-- The tables of a profile. columns.py holds the same names and types for the Python side; a test
-- keeps the two together. Times are integer nanoseconds; an axis is that of its own trace.

CREATE TABLE run (
    run_id VARCHAR, created_at TIMESTAMP, workload VARCHAR, mode VARCHAR, phases VARCHAR,
    settings VARCHAR, dtype VARCHAR, seed BIGINT, device_type VARCHAR, device_name VARCHAR,
    torch_version VARCHAR, cuda_version VARCHAR, driver_version VARCHAR, sm_clock_mhz INTEGER,
    l2_bytes BIGINT, tool_version VARCHAR, schema_version INTEGER, step_bare_ns BIGINT,
    step_bare_low_ns BIGINT, step_bare_high_ns BIGINT, step_profiled_ns BIGINT, dilation DOUBLE
);
COMMENT ON TABLE run IS 'One recording: how, where and with what it was made, and its step time';
COMMENT ON COLUMN run.run_id IS 'Key of the recording';
COMMENT ON COLUMN run.created_at IS 'When it was recorded, UTC';
COMMENT ON COLUMN run.workload IS 'Provider, module:function, or the name that the user gave';
COMMENT ON COLUMN run.mode IS
    'eager, compile, cudagraph or compile+cudagraph; NULL for a foreign trace';
COMMENT ON COLUMN run.phases IS 'Phases that were recorded, comma-separated, in order';
COMMENT ON COLUMN run.settings IS 'What the workload was built with, a JSON object';
COMMENT ON COLUMN run.dtype IS 'fp32, or the dtype of autocast';
COMMENT ON COLUMN run.seed IS 'Seed of the random generators';
COMMENT ON COLUMN run.device_type IS 'cuda or cpu; NULL where a foreign trace does not say';
COMMENT ON COLUMN run.device_name IS 'Device as the driver names it';
COMMENT ON COLUMN run.torch_version IS 'PyTorch that recorded';
COMMENT ON COLUMN run.cuda_version IS 'CUDA runtime that PyTorch was built with';
COMMENT ON COLUMN run.driver_version IS 'Device driver';
COMMENT ON COLUMN run.sm_clock_mhz IS 'SM clock under load before the first profile, MHz';
COMMENT ON COLUMN run.l2_bytes IS 'Size of the L2 cache, bytes';
COMMENT ON COLUMN run.tool_version IS 'cb-trace that recorded; for a foreign trace, that ingested';
COMMENT ON COLUMN run.schema_version IS 'Version of this schema; a reader refuses a newer one';
COMMENT ON COLUMN run.step_bare_ns IS
    'Median bare step of the deployment as recorded, ns; NULL where none was measured';
COMMENT ON COLUMN run.step_bare_low_ns IS 'Lower bound of step_bare_ns, ns';
COMMENT ON COLUMN run.step_bare_high_ns IS 'Upper bound of step_bare_ns, ns';
COMMENT ON COLUMN run.step_profiled_ns IS 'Median step under the profiler, ns';
COMMENT ON COLUMN run.dilation IS 'step_profiled_ns over step_bare_ns, ratio';

CREATE TABLE module (
    module_id INTEGER, run_id VARCHAR, path VARCHAR, class VARCHAR, parent_id INTEGER,
    depth INTEGER, ordinal INTEGER, parameters BIGINT, parameter_bytes BIGINT,
    buffer_bytes BIGINT, signature VARCHAR, aliases VARCHAR
);
COMMENT ON TABLE module IS 'One module of the tree';
COMMENT ON COLUMN module.module_id IS 'Key of the module';
COMMENT ON COLUMN module.run_id IS 'Recording it belongs to';
COMMENT ON COLUMN module.path IS 'Qualified name, wrappers removed; empty for the root';
COMMENT ON COLUMN module.class IS 'Class name';
COMMENT ON COLUMN module.parent_id IS 'Module that holds it; NULL for the root';
COMMENT ON COLUMN module.depth IS 'Distance from the root, 0 for the root';
COMMENT ON COLUMN module.ordinal IS 'Place in the order of named_modules()';
COMMENT ON COLUMN module.parameters IS 'Parameters, children included, a shared one once, count';
COMMENT ON COLUMN module.parameter_bytes IS 'Bytes of those parameters';
COMMENT ON COLUMN module.buffer_bytes IS 'Bytes of its buffers, children included';
COMMENT ON COLUMN module.signature IS 'Class and configuration; equal ones may share a measurement';
COMMENT ON COLUMN module.aliases IS 'Further paths of the same module, a JSON array';

CREATE TABLE step_sample (
    run_id VARCHAR, kind VARCHAR, deployment VARCHAR, sample INTEGER, ns BIGINT, turn INTEGER,
    sm_clock_mhz INTEGER, temperature_c INTEGER
);
COMMENT ON TABLE step_sample IS 'One timing of the step';
COMMENT ON COLUMN step_sample.run_id IS 'Recording';
COMMENT ON COLUMN step_sample.kind IS
    'bare (no profiler), bare_one_stream (all on one), bare_after (a check), profiled or sequence';
COMMENT ON COLUMN step_sample.deployment IS 'eager or graph';
COMMENT ON COLUMN step_sample.sample IS 'Number of the sample in the order taken, from 0';
COMMENT ON COLUMN step_sample.ns IS 'Wall time of the step, ns';
COMMENT ON COLUMN step_sample.turn IS
    'Block it was taken in: blocks of steps and of modules alone took turns; NULL: not in blocks';
COMMENT ON COLUMN step_sample.sm_clock_mhz IS 'SM clock right after that block, MHz; NULL: unknown';
COMMENT ON COLUMN step_sample.temperature_c IS
    'Device temperature right after that block, degrees Celsius; NULL: unknown';

CREATE TABLE replay (
    replay_id INTEGER, run_id VARCHAR, module_id INTEGER, phase VARCHAR, condition VARCHAR,
    call_index INTEGER, calls INTEGER, measured_id INTEGER, median_ns BIGINT, low_ns BIGINT,
    high_ns BIGINT, samples INTEGER, kernel_ns BIGINT, busy_ns BIGINT, skipped VARCHAR,
    dropped INTEGER, unlike VARCHAR
);
COMMENT ON TABLE replay IS
    'One module replayed alone on one of its captured inputs, in one condition';
COMMENT ON COLUMN replay.replay_id IS 'Key of the measurement';
COMMENT ON COLUMN replay.run_id IS 'Recording';
COMMENT ON COLUMN replay.module_id IS 'Module that was replayed';
COMMENT ON COLUMN replay.phase IS 'forward, backward, …';
COMMENT ON COLUMN replay.condition IS
    'hot (back to back), cold (L2 flushed before each) or graph (captured alone)';
COMMENT ON COLUMN replay.call_index IS 'The captured call, from 0 in call order within a step';
COMMENT ON COLUMN replay.calls IS 'Calls a step that this measurement stands for';
COMMENT ON COLUMN replay.measured_id IS
    'Measurement that holds the samples: itself, or the identical module it shares';
COMMENT ON COLUMN replay.median_ns IS 'Median bare wall time per call, ns';
COMMENT ON COLUMN replay.low_ns IS 'Lower bound of median_ns, ns';
COMMENT ON COLUMN replay.high_ns IS 'Upper bound of median_ns, ns';
COMMENT ON COLUMN replay.samples IS 'Number of samples';
COMMENT ON COLUMN replay.kernel_ns IS
    'Sum of its kernel durations (K) per call, ns; on CPU scaled to the bare replay';
COMMENT ON COLUMN replay.busy_ns IS
    'Union of its kernel intervals (U) per call, ns; on CPU scaled to the bare replay';
COMMENT ON COLUMN replay.skipped IS 'Why it was not measured; NULL where it was';
COMMENT ON COLUMN replay.dropped IS
    'Samples that were left out, as the device was throttled while they were taken';
COMMENT ON COLUMN replay.unlike IS
    'How it differs in the step from the modules it would have shared a measurement with; else NULL';

CREATE TABLE replay_sample (
    replay_id INTEGER, sample INTEGER, ns BIGINT, turn INTEGER, sm_clock_mhz INTEGER,
    temperature_c INTEGER
);
COMMENT ON TABLE replay_sample IS 'One bare timing of a replay';
COMMENT ON COLUMN replay_sample.replay_id IS 'Measurement';
COMMENT ON COLUMN replay_sample.sample IS 'Number of the sample in the order taken, from 0';
COMMENT ON COLUMN replay_sample.ns IS 'Wall time per call, ns';
COMMENT ON COLUMN replay_sample.turn IS 'Block it was taken in; see step_sample.turn';
COMMENT ON COLUMN replay_sample.sm_clock_mhz IS
    'SM clock right after that block, MHz; NULL: unknown';
COMMENT ON COLUMN replay_sample.temperature_c IS
    'Device temperature right after that block, degrees Celsius; NULL: unknown';

CREATE TABLE note (
    run_id VARCHAR, module_id INTEGER, reason VARCHAR, detail VARCHAR, count BIGINT
);
COMMENT ON TABLE note IS 'Something a reader of the figures must know';
COMMENT ON COLUMN note.run_id IS 'Recording';
COMMENT ON COLUMN note.module_id IS 'Module it is about; NULL for the whole recording';
COMMENT ON COLUMN note.reason IS 'What kind of thing';
COMMENT ON COLUMN note.detail IS 'The particulars';
COMMENT ON COLUMN note.count IS 'How often it happened';

CREATE TABLE trace (
    trace_id INTEGER, run_id VARCHAR, role VARCHAR, path VARCHAR, sha256 VARCHAR, rank INTEGER,
    world_size INTEGER, origin_ns BIGINT, first_ns BIGINT, span_ns BIGINT,
    resolution_ns INTEGER, slices BIGINT, repaired BIGINT, dropped BIGINT,
    kernels_without_launch BIGINT
);
COMMENT ON TABLE trace IS 'One Kineto file';
COMMENT ON COLUMN trace.trace_id IS 'Key of the file';
COMMENT ON COLUMN trace.run_id IS 'Recording';
COMMENT ON COLUMN trace.role IS
    'context, sequence, graph (the step as a CUDA graph), isolated, foreign or capture';
COMMENT ON COLUMN trace.path IS
    'File, relative to the folder of this profile; it may lead into a zip';
COMMENT ON COLUMN trace.sha256 IS 'SHA-256 of the file, hex';
COMMENT ON COLUMN trace.rank IS 'Rank of the process that wrote it';
COMMENT ON COLUMN trace.world_size IS 'Ranks of the job';
COMMENT ON COLUMN trace.origin_ns IS
    'Time that the file''s times count from, ns since 1970; 0 where the file gives none';
COMMENT ON COLUMN trace.first_ns IS 'Start of the first event with a duration, ns';
COMMENT ON COLUMN trace.span_ns IS 'From the first start to the last end, ns';
COMMENT ON COLUMN trace.resolution_ns IS 'Resolution of the file''s times, ns';
COMMENT ON COLUMN trace.slices IS 'Complete events in the file, dropped ones not counted';
COMMENT ON COLUMN trace.repaired IS 'Events that were repaired';
COMMENT ON COLUMN trace.dropped IS 'Events that were dropped';
COMMENT ON COLUMN trace.kernels_without_launch IS
    'Device activities whose launch is not in the file';

CREATE TABLE thread (
    thread INTEGER, trace_id INTEGER, pid VARCHAR, tid VARCHAR, name VARCHAR, process VARCHAR
);
COMMENT ON TABLE thread IS 'One thread or stream row of a trace';
COMMENT ON COLUMN thread.thread IS 'Key of the row';
COMMENT ON COLUMN thread.trace_id IS 'Trace';
COMMENT ON COLUMN thread.pid IS 'Process id as in the file';
COMMENT ON COLUMN thread.tid IS 'Thread id as in the file';
COMMENT ON COLUMN thread.name IS 'Name of the thread';
COMMENT ON COLUMN thread.process IS 'Name of the process';

CREATE TABLE step (
    trace_id INTEGER, step INTEGER, name VARCHAR, thread INTEGER, start_ns BIGINT,
    dur_ns BIGINT, window_ns BIGINT
);
COMMENT ON TABLE step IS 'One recorded step of a trace';
COMMENT ON COLUMN step.trace_id IS 'Trace';
COMMENT ON COLUMN step.step IS 'Number of the step in time order, from 0';
COMMENT ON COLUMN step.name IS 'Name of its range';
COMMENT ON COLUMN step.thread IS 'Thread of its range';
COMMENT ON COLUMN step.start_ns IS 'Start, ns on the trace''s axis';
COMMENT ON COLUMN step.dur_ns IS 'Duration of the range, ns';
COMMENT ON COLUMN step.window_ns IS
    'From the start to the later of the range''s end and its last kernel''s end, ns';

CREATE TABLE annotation (
    annotation_id BIGINT, trace_id INTEGER, layer VARCHAR, name VARCHAR, thread INTEGER,
    start_ns BIGINT, dur_ns BIGINT
);
COMMENT ON TABLE annotation IS 'One named range of the user or of cb-trace';
COMMENT ON COLUMN annotation.annotation_id IS 'Key of the range';
COMMENT ON COLUMN annotation.trace_id IS 'Trace';
COMMENT ON COLUMN annotation.layer IS 'user (on the CPU) or gpu (its projection on the device)';
COMMENT ON COLUMN annotation.name IS 'Name as in the file';
COMMENT ON COLUMN annotation.thread IS 'Thread or stream';
COMMENT ON COLUMN annotation.start_ns IS 'Start, ns on the trace''s axis';
COMMENT ON COLUMN annotation.dur_ns IS 'Duration, ns';

CREATE TABLE python_module (
    python_id BIGINT, trace_id INTEGER, parent_python_id BIGINT, name VARCHAR, thread INTEGER,
    start_ns BIGINT, dur_ns BIGINT
);
COMMENT ON TABLE python_module IS 'One nn.Module slice of the Python stack';
COMMENT ON COLUMN python_module.python_id IS 'Key of the slice';
COMMENT ON COLUMN python_module.trace_id IS 'Trace';
COMMENT ON COLUMN python_module.parent_python_id IS 'Nearest nn.Module slice around it';
COMMENT ON COLUMN python_module.name IS 'Class and number of the instance';
COMMENT ON COLUMN python_module.thread IS 'Thread';
COMMENT ON COLUMN python_module.start_ns IS 'Start, ns on the trace''s axis';
COMMENT ON COLUMN python_module.dur_ns IS 'Duration, ns';

CREATE TABLE op (
    op_id BIGINT, trace_id INTEGER, name VARCHAR, thread INTEGER, start_ns BIGINT,
    dur_ns BIGINT, external_id BIGINT, sequence_number BIGINT, forward_thread BIGINT
);
COMMENT ON TABLE op IS 'One operator on the CPU';
COMMENT ON COLUMN op.op_id IS 'Key of the operator call';
COMMENT ON COLUMN op.trace_id IS 'Trace';
COMMENT ON COLUMN op.name IS 'Operator';
COMMENT ON COLUMN op.thread IS 'Thread';
COMMENT ON COLUMN op.start_ns IS 'Start, ns on the trace''s axis';
COMMENT ON COLUMN op.dur_ns IS 'Duration, children included, ns';
COMMENT ON COLUMN op.external_id IS 'External id as in the file';
COMMENT ON COLUMN op.sequence_number IS 'Autograd sequence number';
COMMENT ON COLUMN op.forward_thread IS
    'The profiler''s number of the forward thread; above 0 on backward operators';

CREATE TABLE launch (
    launch_id BIGINT, trace_id INTEGER, category VARCHAR, name VARCHAR, thread INTEGER,
    start_ns BIGINT, dur_ns BIGINT, correlation BIGINT, op_id BIGINT,
    kernel_name VARCHAR, grid VARCHAR, block VARCHAR
);
COMMENT ON TABLE launch IS 'One runtime or driver call';
COMMENT ON COLUMN launch.launch_id IS 'Key of the call';
COMMENT ON COLUMN launch.trace_id IS 'Trace';
COMMENT ON COLUMN launch.category IS 'Category as in the file';
COMMENT ON COLUMN launch.name IS 'Call';
COMMENT ON COLUMN launch.thread IS 'Thread';
COMMENT ON COLUMN launch.start_ns IS 'Start, ns on the trace''s axis';
COMMENT ON COLUMN launch.dur_ns IS 'Duration, ns';
COMMENT ON COLUMN launch.correlation IS 'Correlation id that its kernels carry';
COMMENT ON COLUMN launch.op_id IS 'Innermost operator around it';
COMMENT ON COLUMN launch.kernel_name IS 'Kernel that the call itself names; NULL where it does not';
COMMENT ON COLUMN launch.grid IS 'Blocks of the grid by the call itself, x,y,z';
COMMENT ON COLUMN launch.block IS 'Threads of a block by the call itself, x,y,z';

CREATE TABLE kernel (
    kernel_id BIGINT, trace_id INTEGER, kind VARCHAR, category VARCHAR, name VARCHAR,
    device INTEGER, stream BIGINT, thread INTEGER, start_ns BIGINT, dur_ns BIGINT,
    correlation BIGINT, launch_id BIGINT, op_id BIGINT, step INTEGER, graph_id BIGINT,
    graph_node_id BIGINT, grid VARCHAR, block VARCHAR, registers INTEGER, shared_memory BIGINT,
    bytes BIGINT, external_id BIGINT, flaw VARCHAR
);
COMMENT ON TABLE kernel IS
    'One device activity; on a CPU-only run, one uninterrupted stretch of an operator''s self time';
COMMENT ON COLUMN kernel.kernel_id IS 'Key of the activity';
COMMENT ON COLUMN kernel.trace_id IS 'Trace';
COMMENT ON COLUMN kernel.kind IS 'kernel, memcpy, memset or cpu';
COMMENT ON COLUMN kernel.category IS 'Category as in the file';
COMMENT ON COLUMN kernel.name IS 'Name as in the file';
COMMENT ON COLUMN kernel.device IS 'Device number';
COMMENT ON COLUMN kernel.stream IS 'Stream number; the thread on a CPU-only run';
COMMENT ON COLUMN kernel.thread IS 'Row of the device''s stream';
COMMENT ON COLUMN kernel.start_ns IS 'Start, ns on the trace''s axis';
COMMENT ON COLUMN kernel.dur_ns IS 'Duration, ns';
COMMENT ON COLUMN kernel.correlation IS 'Correlation id of its launch';
COMMENT ON COLUMN kernel.launch_id IS 'Launch, by correlation id only';
COMMENT ON COLUMN kernel.op_id IS 'Innermost operator around the launch';
COMMENT ON COLUMN kernel.step IS
    'Step, by the launch, else by its own start; NULL outside every step';
COMMENT ON COLUMN kernel.graph_id IS 'CUDA graph it ran in';
COMMENT ON COLUMN kernel.graph_node_id IS 'Node of that graph';
COMMENT ON COLUMN kernel.grid IS 'Blocks of the grid, x,y,z';
COMMENT ON COLUMN kernel.block IS 'Threads of a block, x,y,z';
COMMENT ON COLUMN kernel.registers IS 'Registers per thread';
COMMENT ON COLUMN kernel.shared_memory IS 'Shared memory per block, bytes';
COMMENT ON COLUMN kernel.bytes IS 'Bytes moved by a copy or set';
COMMENT ON COLUMN kernel.external_id IS 'External id as in the file, a cross-check';
COMMENT ON COLUMN kernel.flaw IS 'What is wrong with the event; NULL where it is sound';

CREATE TABLE drop (
    trace_id INTEGER, reason VARCHAR, events BIGINT, ns BIGINT
);
COMMENT ON TABLE drop IS 'What was repaired, dropped, clamped or left unlinked while reading';
COMMENT ON COLUMN drop.trace_id IS 'Trace';
COMMENT ON COLUMN drop.reason IS 'What happened';
COMMENT ON COLUMN drop.events IS 'How many events';
COMMENT ON COLUMN drop.ns IS 'Their duration, ns';

CREATE TABLE module_call (
    call_id BIGINT, trace_id INTEGER, module_id INTEGER, parent_call_id BIGINT, step INTEGER,
    call_index INTEGER, phase VARCHAR, thread INTEGER, start_ns BIGINT, dur_ns BIGINT
);
COMMENT ON TABLE module_call IS 'One execution of a module in context';
COMMENT ON COLUMN module_call.call_id IS 'Key of the call';
COMMENT ON COLUMN module_call.trace_id IS 'Trace';
COMMENT ON COLUMN module_call.module_id IS 'Module';
COMMENT ON COLUMN module_call.parent_call_id IS 'Call of a module around it';
COMMENT ON COLUMN module_call.step IS 'Step; NULL outside every step';
COMMENT ON COLUMN module_call.call_index IS
    'Number of the call within module and step, from 0; of a recomputed one: of the call it repeats';
COMMENT ON COLUMN module_call.phase IS 'forward, backward, recompute or optimizer';
COMMENT ON COLUMN module_call.thread IS 'Thread';
COMMENT ON COLUMN module_call.start_ns IS 'Start, ns on the trace''s axis';
COMMENT ON COLUMN module_call.dur_ns IS 'Duration on the CPU, ns';

CREATE TABLE kernel_module (
    kernel_id BIGINT, module_id INTEGER, call_id BIGINT, phase VARCHAR, share DOUBLE, ns BIGINT,
    method VARCHAR, reason VARCHAR, bytes BIGINT, confidence VARCHAR
);
COMMENT ON TABLE kernel_module IS
    'One kernel''s share in one module, exclusive: the innermost module';
COMMENT ON COLUMN kernel_module.kernel_id IS 'Device activity';
COMMENT ON COLUMN kernel_module.module_id IS 'Module; NULL where unattributed';
COMMENT ON COLUMN kernel_module.call_id IS 'Call of the module';
COMMENT ON COLUMN kernel_module.phase IS 'Phase of the work';
COMMENT ON COLUMN kernel_module.share IS
    'Part of the kernel that is the module''s, ratio; 1 over the rows of a kernel';
COMMENT ON COLUMN kernel_module.ns IS
    'Share of the duration, ns; sums to the duration exactly over the rows of a kernel';
COMMENT ON COLUMN kernel_module.method IS
    'Evidence: range, python, autograd, parameter, inductor, graph_node, graph_order, step or none';
COMMENT ON COLUMN kernel_module.reason IS 'Why unattributed; NULL where attributed';
COMMENT ON COLUMN kernel_module.bytes IS
    'Bytes that the module''s part moves by its tensors'' sizes; NULL where not known';
COMMENT ON COLUMN kernel_module.confidence IS
    'exact (by links that the trace states), matched (with what was compiled or captured, by name '
    'and order), split (one of several modules, by bytes or FLOPs) or none';

CREATE TABLE replay_kernel (
    replay_id INTEGER, iteration INTEGER, position INTEGER, kernel_id BIGINT
);
COMMENT ON TABLE replay_kernel IS 'One device activity of a profiled replay';
COMMENT ON COLUMN replay_kernel.replay_id IS 'Measurement that ran it';
COMMENT ON COLUMN replay_kernel.iteration IS 'Profiled call, from 0';
COMMENT ON COLUMN replay_kernel.position IS 'Place by start within the call, from 0';
COMMENT ON COLUMN replay_kernel.kernel_id IS 'Device activity';
