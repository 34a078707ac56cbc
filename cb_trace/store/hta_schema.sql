-- What HolisticTraceAnalysis says about the traces: a second opinion, filled on request only.
-- IF NOT EXISTS: a profile from before these tables gets them when the opinion is added.

CREATE TABLE IF NOT EXISTS hta_temporal (
    trace_id INTEGER, rounded BOOLEAN, span_ns BIGINT, compute_ns BIGINT, non_compute_ns BIGINT,
    idle_ns BIGINT
);
COMMENT ON TABLE hta_temporal IS
    'Time of one trace over all streams, as HolisticTraceAnalysis divides it';
COMMENT ON COLUMN hta_temporal.trace_id IS 'Trace file';
COMMENT ON COLUMN hta_temporal.rounded IS
    'Whether HTA rounded times to whole us, as it does unless told not to';
COMMENT ON COLUMN hta_temporal.span_ns IS 'From the first start to the last end of a device activity, ns';
COMMENT ON COLUMN hta_temporal.compute_ns IS 'Part in which a computation kernel runs, ns';
COMMENT ON COLUMN hta_temporal.non_compute_ns IS 'Part in which only other kernels run, ns';
COMMENT ON COLUMN hta_temporal.idle_ns IS 'Part in which nothing runs, ns';

CREATE TABLE IF NOT EXISTS hta_idle (
    trace_id INTEGER, rounded BOOLEAN, stream BIGINT, category VARCHAR, intervals BIGINT,
    ns BIGINT
);
COMMENT ON TABLE hta_idle IS
    'Idle time of one stream by cause, as HolisticTraceAnalysis divides it';
COMMENT ON COLUMN hta_idle.trace_id IS 'Trace file';
COMMENT ON COLUMN hta_idle.rounded IS
    'Whether HTA rounded times to whole us, as it does unless told not to';
COMMENT ON COLUMN hta_idle.stream IS 'Stream';
COMMENT ON COLUMN hta_idle.category IS 'host_wait, kernel_wait (a gap under 30 us) or other';
COMMENT ON COLUMN hta_idle.intervals IS 'Gaps, count';
COMMENT ON COLUMN hta_idle.ns IS 'Their sum, ns; negative where kernels of the stream overlap';

CREATE TABLE IF NOT EXISTS hta_kernel_type (
    trace_id INTEGER, rounded BOOLEAN, kernel_type VARCHAR, ns BIGINT
);
COMMENT ON TABLE hta_kernel_type IS
    'Device time of one trace by type of kernel, as HolisticTraceAnalysis sorts names';
COMMENT ON COLUMN hta_kernel_type.trace_id IS 'Trace file';
COMMENT ON COLUMN hta_kernel_type.rounded IS
    'Whether HTA rounded times to whole us, as it does unless told not to';
COMMENT ON COLUMN hta_kernel_type.kernel_type IS
    'COMPUTATION, COMMUNICATION, MEMORY, or which of them overlap';
COMMENT ON COLUMN hta_kernel_type.ns IS 'Time in which just these types run, ns';

CREATE TABLE IF NOT EXISTS hta_kernel (
    trace_id INTEGER, rounded BOOLEAN, kernel_type VARCHAR, name VARCHAR, kernels BIGINT,
    sum_ns BIGINT, min_ns BIGINT, max_ns BIGINT
);
COMMENT ON TABLE hta_kernel IS 'Device time of one kernel name, from HolisticTraceAnalysis';
COMMENT ON COLUMN hta_kernel.trace_id IS 'Trace file';
COMMENT ON COLUMN hta_kernel.rounded IS
    'Whether HTA rounded times to whole us, as it does unless told not to';
COMMENT ON COLUMN hta_kernel.kernel_type IS 'COMPUTATION, COMMUNICATION or MEMORY, by the name';
COMMENT ON COLUMN hta_kernel.name IS 'Kernel name';
COMMENT ON COLUMN hta_kernel.kernels IS 'Rows of that name, count';
COMMENT ON COLUMN hta_kernel.sum_ns IS 'Sum of their durations, ns';
COMMENT ON COLUMN hta_kernel.min_ns IS 'Shortest, ns';
COMMENT ON COLUMN hta_kernel.max_ns IS 'Longest, ns';

CREATE TABLE IF NOT EXISTS hta_overlap (
    trace_id INTEGER, rounded BOOLEAN, overlap_ratio DOUBLE
);
COMMENT ON TABLE hta_overlap IS
    'Communication hidden behind computation, from HolisticTraceAnalysis';
COMMENT ON COLUMN hta_overlap.trace_id IS 'Trace file';
COMMENT ON COLUMN hta_overlap.rounded IS
    'Whether HTA rounded times to whole us, as it does unless told not to';
COMMENT ON COLUMN hta_overlap.overlap_ratio IS
    'Part of the communication time that runs beside computation, ratio; NULL without any';

CREATE TABLE IF NOT EXISTS hta_event (
    trace_id INTEGER, event_index BIGINT, kernel_id BIGINT, category VARCHAR, name VARCHAR,
    correlation BIGINT, stream BIGINT, start_ns BIGINT, dur_ns BIGINT, linked BOOLEAN
);
COMMENT ON TABLE hta_event IS
    'One event that HolisticTraceAnalysis takes for device work, with our kernel';
COMMENT ON COLUMN hta_event.trace_id IS 'Trace file';
COMMENT ON COLUMN hta_event.event_index IS
    'Place in the file''s traceEvents, from 0; twice where HTA counts an event twice';
COMMENT ON COLUMN hta_event.kernel_id IS 'Our kernel; NULL where none of ours is meant';
COMMENT ON COLUMN hta_event.category IS 'Category in the file';
COMMENT ON COLUMN hta_event.name IS 'Name in the file';
COMMENT ON COLUMN hta_event.correlation IS 'Correlation id, -1 where absent';
COMMENT ON COLUMN hta_event.stream IS 'Stream';
COMMENT ON COLUMN hta_event.start_ns IS 'Start on the trace''s axis as HTA has it, ns';
COMMENT ON COLUMN hta_event.dur_ns IS
    'Duration as HTA has it, ns; negative where its rounding turned a short one over';
COMMENT ON COLUMN hta_event.linked IS 'Whether HTA found the launch';

CREATE TABLE IF NOT EXISTS hta_critical_path (
    trace_id INTEGER, rounded BOOLEAN, step INTEGER, position BIGINT, kind VARCHAR,
    bound_by VARCHAR, ns BIGINT, event_index BIGINT, category VARCHAR, name VARCHAR,
    stream BIGINT, kernel_id BIGINT, op_id BIGINT, launch_id BIGINT, module_id INTEGER
);
COMMENT ON TABLE hta_critical_path IS
    'One edge of the critical path of one step, from HolisticTraceAnalysis';
COMMENT ON COLUMN hta_critical_path.trace_id IS 'Trace file';
COMMENT ON COLUMN hta_critical_path.rounded IS
    'Whether HTA rounded times to whole us, as it does unless told not to';
COMMENT ON COLUMN hta_critical_path.step IS
    'Step it covers: the second, or the only one; NULL where it covers the whole trace';
COMMENT ON COLUMN hta_critical_path.position IS 'Place on the path, from 0';
COMMENT ON COLUMN hta_critical_path.kind IS
    'operator, dependency, sync_dependency, kernel_launch_delay or kernel_kernel_delay';
COMMENT ON COLUMN hta_critical_path.bound_by IS
    'What the edge waits on, in HTA''s words; NULL for a dependency';
COMMENT ON COLUMN hta_critical_path.ns IS 'Length, ns';
COMMENT ON COLUMN hta_critical_path.event_index IS
    'Event that owns the edge, else the one it leads to: place in traceEvents';
COMMENT ON COLUMN hta_critical_path.category IS 'Category of the event';
COMMENT ON COLUMN hta_critical_path.name IS 'Name of the event';
COMMENT ON COLUMN hta_critical_path.stream IS 'Stream; NULL on the host';
COMMENT ON COLUMN hta_critical_path.kernel_id IS 'Our kernel, for a device event';
COMMENT ON COLUMN hta_critical_path.op_id IS 'Our operator, for a host event';
COMMENT ON COLUMN hta_critical_path.launch_id IS 'Our launch, for a host event';
COMMENT ON COLUMN hta_critical_path.module_id IS
    'Module: of the kernel (the largest share), or of the call around the host event';

CREATE TABLE IF NOT EXISTS hta_check (
    trace_id INTEGER, rounded BOOLEAN, metric VARCHAR, unit VARCHAR, ours BIGINT, hta BIGINT,
    bound BIGINT, agrees BOOLEAN, reason VARCHAR
);
COMMENT ON TABLE hta_check IS 'One figure, ours against HolisticTraceAnalysis';
COMMENT ON COLUMN hta_check.trace_id IS 'Trace file';
COMMENT ON COLUMN hta_check.rounded IS
    'Whether HTA rounded times to whole us, as it does unless told not to';
COMMENT ON COLUMN hta_check.metric IS
    'kernels, kernels_with_launch, kernel_time, matched_durations, span, busy or idle';
COMMENT ON COLUMN hta_check.unit IS 'ns or count';
COMMENT ON COLUMN hta_check.ours IS 'Our figure';
COMMENT ON COLUMN hta_check.hta IS 'The figure of HTA';
COMMENT ON COLUMN hta_check.bound IS 'Largest difference that HTA''s rounding explains';
COMMENT ON COLUMN hta_check.agrees IS 'Whether the difference is within the bound';
COMMENT ON COLUMN hta_check.reason IS
    'What separates the two sets of events; NULL where they agree';

CREATE TABLE IF NOT EXISTS hta_failure (
    trace_id INTEGER, rounded BOOLEAN, analysis VARCHAR, reason VARCHAR
);
COMMENT ON TABLE hta_failure IS 'What HolisticTraceAnalysis could not do with a trace';
COMMENT ON COLUMN hta_failure.trace_id IS 'Trace file';
COMMENT ON COLUMN hta_failure.rounded IS
    'Whether HTA rounded times to whole us, as it does unless told not to';
COMMENT ON COLUMN hta_failure.analysis IS 'load, temporal, idle, kernels, overlap or critical_path';
COMMENT ON COLUMN hta_failure.reason IS 'What it raised, one line';
