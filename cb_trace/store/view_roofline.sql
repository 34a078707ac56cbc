-- How far each module is from the hardware's limit, and where the bytes are. The rules of ``bound``
-- are those of docs/counting.md; the first that fits is taken.

-- Per step. A module that is never called has the sum of the nearest counted modules below it; the
-- row of phase step holds all phases, without the FLOPs of recomputation (MFU, not HFU).
CREATE VIEW _work AS
WITH RECURSIVE own AS (
    SELECT
        module_id,
        phase,
        coalesce(sum(calls) FILTER (WHERE call_index >= 0), 0) AS calls,
        sum(calls * flops) AS flops,
        sum(calls * flops_extended) AS flops_extended,
        sum(calls * bytes_compulsory) AS bytes_compulsory,
        sum(calls * bytes_requested) AS bytes_requested,
        sum(calls * uncounted_ops) AS uncounted_ops,
        arg_max(dtype, calls * flops * dtype_ratio) AS dtype,
        max(calls * flops * dtype_ratio) AS dtype_flops
    FROM cost
    GROUP BY ALL
), node AS (
    SELECT
        module.module_id,
        module.parent_id,
        counted.phase,
        own.module_id IS NOT NULL AS is_counted,
        own.* EXCLUDE (module_id, phase)
    FROM (SELECT DISTINCT run_id, phase FROM cost) AS counted
    JOIN module ON module.run_id = counted.run_id
    LEFT JOIN own ON own.module_id = module.module_id AND own.phase = counted.phase
), below AS (
    SELECT module_id AS ancestor_id, node.* FROM node
    UNION ALL
    SELECT below.ancestor_id, node.*
    FROM below
    JOIN node ON node.parent_id = below.module_id AND node.phase = below.phase
    WHERE NOT below.is_counted
), phased AS (
    SELECT ancestor_id, phase, phase AS counted_phase, below.* EXCLUDE (ancestor_id, phase)
    FROM below
    UNION ALL
    SELECT ancestor_id, 'step', phase, below.* EXCLUDE (ancestor_id, phase)
    FROM below
)
SELECT
    ancestor_id AS module_id,
    phase,
    coalesce(
        sum(calls) FILTER (WHERE phase <> 'step' OR counted_phase = 'forward'), 0
    )::BIGINT AS calls,
    coalesce(
        sum(flops) FILTER (WHERE phase <> 'step' OR counted_phase <> 'recompute'), 0
    )::DOUBLE AS flops,
    coalesce(
        sum(flops_extended) FILTER (WHERE phase <> 'step' OR counted_phase <> 'recompute'), 0
    )::DOUBLE AS flops_extended,
    sum(bytes_compulsory)::DOUBLE AS bytes_compulsory,
    sum(bytes_requested)::DOUBLE AS bytes_requested,
    sum(uncounted_ops)::BIGINT AS uncounted_ops,
    arg_max(dtype, dtype_flops) AS dtype
FROM phased
WHERE is_counted
GROUP BY ALL;
COMMENT ON VIEW _work IS 'Step: counted work of every module, its own or that of those below it';
COMMENT ON COLUMN _work.module_id IS 'Module';
COMMENT ON COLUMN _work.phase IS 'Phase; step holds them all';
COMMENT ON COLUMN _work.calls IS 'Calls a step; of phase step, forward calls';
COMMENT ON COLUMN _work.flops IS 'FLOPs that torch''s counter knows, a step';
COMMENT ON COLUMN _work.flops_extended IS 'FLOPs with our formulas, a step';
COMMENT ON COLUMN _work.bytes_compulsory IS 'Compulsory bytes a step';
COMMENT ON COLUMN _work.bytes_requested IS 'Requested bytes a step';
COMMENT ON COLUMN _work.uncounted_ops IS 'Calls of operators without a formula, a step';
COMMENT ON COLUMN _work.dtype IS 'Precision of most FLOPs';

CREATE VIEW _uncounted AS
WITH listed AS (
    SELECT module_id, phase, name, kernel_ns FROM uncounted_op
    UNION ALL
    SELECT module_id, 'step', name, kernel_ns FROM uncounted_op
), each AS (
    SELECT module_id, phase, name, sum(kernel_ns) AS kernel_ns FROM listed GROUP BY ALL
)
SELECT
    module_id,
    phase,
    string_agg(name, ', ' ORDER BY kernel_ns DESC NULLS LAST, name) AS names,
    sum(kernel_ns)::BIGINT AS kernel_ns
FROM each
GROUP BY ALL;
COMMENT ON VIEW _uncounted IS 'Step: operators without a formula, and their kernel time';
COMMENT ON COLUMN _uncounted.module_id IS 'Module';
COMMENT ON COLUMN _uncounted.phase IS 'Phase';
COMMENT ON COLUMN _uncounted.names IS 'Operators, the longest first';
COMMENT ON COLUMN _uncounted.kernel_ns IS 'Their kernels a step, as profiled, ns';

-- Idle time by cause, of the module and those below it.
CREATE VIEW _idle AS
WITH part AS (
    SELECT deployment, module_id, phase, kind, ns FROM partition
    UNION ALL
    SELECT deployment, module_id, 'step', kind, ns FROM partition WHERE phase <> 'step'
)
SELECT
    part.deployment,
    _descendant.ancestor_id AS module_id,
    part.phase,
    coalesce(sum(part.ns) FILTER (WHERE part.kind = 'idle_host'), 0)::BIGINT AS host_ns,
    coalesce(sum(part.ns) FILTER (WHERE part.kind IN ('idle_sync', 'idle_copy')), 0)::BIGINT
        AS sync_ns
FROM part
JOIN _descendant USING (module_id)
GROUP BY ALL;
COMMENT ON VIEW _idle IS 'Step: idle time that a module owns, by cause, children included';
COMMENT ON COLUMN _idle.deployment IS 'eager or graph';
COMMENT ON COLUMN _idle.module_id IS 'Module';
COMMENT ON COLUMN _idle.phase IS 'Phase';
COMMENT ON COLUMN _idle.host_ns IS 'Waiting for the host, ns';
COMMENT ON COLUMN _idle.sync_ns IS 'Waiting for a synchronisation or a copy, ns';

CREATE VIEW _peak AS
SELECT
    run_id,
    dtype,
    max(value) FILTER (WHERE kind = 'matmul' AND source <> 'measured') AS sheet_flops,
    max(value) FILTER (WHERE kind = 'matmul' AND source = 'measured') AS measured_flops,
    max(value) FILTER (WHERE kind = 'memory' AND source <> 'measured') AS sheet_bandwidth,
    max(value) FILTER (WHERE kind IN ('copy', 'triad') AND source = 'measured')
        AS measured_bandwidth
FROM ceiling
GROUP BY ALL;
COMMENT ON VIEW _peak IS
    'Step: ceilings of each recording by precision; those of memory have none';
COMMENT ON COLUMN _peak.run_id IS 'Recording';
COMMENT ON COLUMN _peak.dtype IS 'Precision';
COMMENT ON COLUMN _peak.sheet_flops IS 'Dense peak by the datasheet, FLOP/s';
COMMENT ON COLUMN _peak.measured_flops IS 'Best matmul measured, FLOP/s';
COMMENT ON COLUMN _peak.sheet_bandwidth IS 'Memory bandwidth by the datasheet, byte/s';
COMMENT ON COLUMN _peak.measured_bandwidth IS 'Best copy or triad measured, byte/s';

-- Device time: the shorter of union and share-weighted sum of the kernels. On the CPU the profiler
-- makes operators longer, so there it is scaled to the bare step.
CREATE VIEW roofline AS
WITH figure AS (
    SELECT
        module.run_id, cost.deployment, module.path, module.class, module.ordinal, cost.phase,
        _work.calls, _work.flops, _work.flops_extended, _work.bytes_compulsory,
        _work.bytes_requested, _work.uncounted_ops AS uncounted_calls,
        _work.dtype,
        _uncounted.names AS uncounted_names,
        _uncounted.kernel_ns / nullif(kernel_class.kernel_ns, 0) AS uncounted_share,
        nullif(
            least(
                coalesce(graphed.busy_ns, context.busy_ns),
                coalesce(graphed.kernel_ns, context.kernel_ns)
            )
            / CASE WHEN run.device_type = 'cpu' THEN coalesce(run.dilation, 1) ELSE 1 END, 0
        ) AS busy_ns,
        nullif(cost.ns, 0) AS cost_ns,
        _idle.host_ns, _idle.sync_ns,
        kernel_class.communication_ns / nullif(kernel_class.kernel_ns, 0) AS communication_share,
        kernel_class.short_ns / nullif(kernel_class.kernel_ns, 0) AS short_share,
        matrix.sheet_flops, matrix.measured_flops, moved.sheet_bandwidth, moved.measured_bandwidth
    FROM _cost AS cost
    JOIN module USING (module_id)
    JOIN run USING (run_id)
    JOIN _work ON _work.module_id = cost.module_id AND _work.phase = cost.phase
    LEFT JOIN module_context AS context
        ON context.module_id = cost.module_id AND context.phase = cost.phase
    LEFT JOIN graph_context AS graphed
        ON graphed.module_id = cost.module_id
        AND graphed.phase = cost.phase
        AND cost.deployment = 'graph'
    LEFT JOIN kernel_class
        ON kernel_class.module_id = cost.module_id AND kernel_class.phase = cost.phase
    LEFT JOIN _uncounted
        ON _uncounted.module_id = cost.module_id AND _uncounted.phase = cost.phase
    LEFT JOIN _idle
        ON _idle.module_id = cost.module_id
        AND _idle.phase = cost.phase
        AND _idle.deployment = cost.deployment
    LEFT JOIN _peak AS matrix ON matrix.run_id = module.run_id AND matrix.dtype = _work.dtype
    LEFT JOIN _peak AS moved ON moved.run_id = module.run_id AND moved.dtype IS NULL
), rate AS (
    SELECT
        *,
        flops * 1e9 / busy_ns AS flops_per_s,
        flops_extended * 1e9 / busy_ns AS flops_extended_per_s,
        bytes_compulsory * 1e9 / busy_ns AS bytes_per_s,
        bytes_requested * 1e9 / busy_ns AS requested_per_s,
        flops * 1e9 / cost_ns AS flops_per_cost_s
    FROM figure
), used AS (
    SELECT
        *,
        CASE WHEN flops > 0 THEN flops_per_s / sheet_flops END AS mfu,
        CASE WHEN flops > 0 THEN flops_per_cost_s / sheet_flops END AS mfu_cost,
        CASE WHEN flops > 0 THEN flops_per_s / measured_flops END AS matmul_use,
        bytes_per_s / sheet_bandwidth AS sheet_use,
        bytes_per_s / measured_bandwidth AS copy_use,
        -- A cache may serve what is asked for twice, so this one may exceed 1.
        requested_per_s / coalesce(measured_bandwidth, sheet_bandwidth) AS requested_use
    FROM rate
), judged AS (
    SELECT
        *,
        coalesce(mfu, 0) > 1 OR coalesce(mfu_cost, 0) > 1 AS impossible,
        coalesce(matmul_use, mfu, 0) AS compute_use,
        greatest(coalesce(copy_use, sheet_use, 0), coalesce(requested_use, 0)) AS memory_use
    FROM used
), classed AS (
    SELECT
        *,
        CASE
            WHEN communication_share >= 0.5 THEN 'communication'
            WHEN sync_ns >= 0.5 * cost_ns THEN 'sync'
            WHEN host_ns >= 0.5 * cost_ns THEN 'host'
            WHEN impossible THEN NULL
            WHEN compute_use >= 0.5 AND compute_use >= memory_use THEN 'compute'
            WHEN memory_use >= 0.5 THEN 'bandwidth'
            WHEN compute_use >= 0.5 THEN 'compute'
            WHEN short_share >= 0.5 THEN 'latency'
        END AS bound
    FROM judged
)
SELECT
    run_id,
    deployment,
    path,
    class,
    phase,
    calls,
    flops,
    flops_extended,
    dtype,
    bytes_compulsory,
    bytes_requested,
    bytes_requested / nullif(bytes_compulsory, 0) AS reuse,
    flops_extended / nullif(bytes_compulsory, 0) AS intensity,
    busy_ns / 1e3 AS busy_us,
    cost_ns / 1e3 AS cost_us,
    flops_per_s,
    flops_extended_per_s,
    bytes_per_s,
    CASE WHEN NOT impossible THEN mfu END AS mfu_ratio,
    CASE WHEN NOT impossible THEN mfu_cost END AS mfu_cost_ratio,
    CASE WHEN NOT impossible THEN matmul_use END AS matmul_ratio,
    sheet_use AS bandwidth_ratio,
    copy_use AS copy_ratio,
    uncounted_names AS uncounted_ops,
    uncounted_calls,
    uncounted_share,
    CASE
        WHEN impossible THEN printf(
            'error: %.0f %% of the datasheet''s peak; count, time or peak is wrong',
            100 * greatest(coalesce(mfu, 0), coalesce(mfu_cost, 0))
        )
        WHEN uncounted_calls > 0 AND uncounted_share IS NULL
            THEN 'operators that no formula covers: ' || coalesce(uncounted_names, 'unnamed')
        WHEN uncounted_calls > 0 THEN printf(
            'operators that no formula covers, %.0f %% of its kernel time: %s',
            100 * uncounted_share, coalesce(uncounted_names, 'unnamed')
        )
        WHEN flops = 0 THEN 'no operator that torch''s counter knows: see flops_extended'
    END AS flag,
    bound,
    CASE bound
        WHEN 'communication'
            THEN printf('%.0f %% of kernel time in collectives', 100 * communication_share)
        WHEN 'sync'
            THEN printf('%.0f %% of its cost waits for a sync or copy', 100 * sync_ns / cost_ns)
        WHEN 'host' THEN printf('%.0f %% of its cost waits for the host', 100 * host_ns / cost_ns)
        WHEN 'compute' THEN printf('%.0f %% of the matmul ceiling', 100 * compute_use)
        WHEN 'bandwidth' THEN printf('%.0f %% of the memory ceiling', 100 * memory_use)
        WHEN 'latency' THEN printf('%.0f %% of kernel time in short kernels', 100 * short_share)
        ELSE CASE
            WHEN coalesce(measured_bandwidth, sheet_bandwidth) IS NULL
                THEN 'no ceiling of this device is known'
            ELSE printf(
                'none is near: %.0f %% of the matmul ceiling, %.0f %% of the memory ceiling',
                100 * compute_use, 100 * memory_use
            )
        END
    END AS bound_why
FROM classed
ORDER BY run_id, deployment, ordinal, phase;
COMMENT ON VIEW roofline IS
    'Per module and phase, children included: work done, how near the hardware''s limit, and what '
    'bounds it';
COMMENT ON COLUMN roofline.run_id IS 'Recording';
COMMENT ON COLUMN roofline.deployment IS 'Way of running the row is about: eager or graph';
COMMENT ON COLUMN roofline.path IS 'Module path; empty for the root';
COMMENT ON COLUMN roofline.class IS 'Class name';
COMMENT ON COLUMN roofline.phase IS 'Phase; step holds them all, recomputed FLOPs left out';
COMMENT ON COLUMN roofline.calls IS 'Counted calls a step; of phase step, forward calls';
COMMENT ON COLUMN roofline.flops IS
    'FLOPs a step that torch''s counter knows: 2mnk, causal attention in full';
COMMENT ON COLUMN roofline.flops_extended IS
    'FLOPs a step with our formulas, causal attention halved';
COMMENT ON COLUMN roofline.dtype IS 'Precision of most of flops';
COMMENT ON COLUMN roofline.bytes_compulsory IS 'Bytes that must cross the module''s border, a step';
COMMENT ON COLUMN roofline.bytes_requested IS 'Bytes that its operators ask for, a step';
COMMENT ON COLUMN roofline.reuse IS 'bytes_requested over bytes_compulsory';
COMMENT ON COLUMN roofline.intensity IS 'flops_extended over bytes_compulsory, FLOP/byte';
COMMENT ON COLUMN roofline.busy_us IS
    'Device time a step in context, us; on the CPU scaled to the bare step';
COMMENT ON COLUMN roofline.cost_us IS 'Part of the step that the module owns, idle included, us';
COMMENT ON COLUMN roofline.flops_per_s IS 'flops over busy_us, FLOP/s';
COMMENT ON COLUMN roofline.flops_extended_per_s IS 'flops_extended over busy_us, FLOP/s';
COMMENT ON COLUMN roofline.bytes_per_s IS 'bytes_compulsory over busy_us, byte/s';
COMMENT ON COLUMN roofline.mfu_ratio IS
    'flops_per_s over the datasheet''s dense peak for dtype, ratio; NULL where flops is 0, the '
    'device is unknown, or it exceeds 1 (see flag)';
COMMENT ON COLUMN roofline.mfu_cost_ratio IS 'flops over cost_us over the same peak, ratio';
COMMENT ON COLUMN roofline.matmul_ratio IS
    'flops_per_s over the best matmul measured on the device, ratio';
COMMENT ON COLUMN roofline.bandwidth_ratio IS 'bytes_per_s over the datasheet''s bandwidth, ratio';
COMMENT ON COLUMN roofline.copy_ratio IS
    'bytes_per_s over the best copy or triad measured on the device, ratio';
COMMENT ON COLUMN roofline.uncounted_ops IS 'Operators that no formula covers, the longest first';
COMMENT ON COLUMN roofline.uncounted_calls IS 'Their calls a step';
COMMENT ON COLUMN roofline.uncounted_share IS 'Their part of the module''s kernel time, ratio';
COMMENT ON COLUMN roofline.flag IS
    'Why a figure is missing or too low; NULL where nothing is wrong';
COMMENT ON COLUMN roofline.bound IS
    'communication, sync, host, compute, bandwidth or latency; NULL where none is near';
COMMENT ON COLUMN roofline.bound_why IS 'What the bound was told by';

CREATE VIEW memory_by_module AS
SELECT
    module.run_id,
    module.path,
    module.class,
    coalesce(context.phase, isolated.phase) AS phase,
    module.parameter_bytes,
    module.buffer_bytes,
    context.peak_bytes AS peak_context_bytes,
    isolated.peak_bytes AS peak_isolated_bytes,
    context.saved_for_backward_bytes AS saved_context_bytes,
    isolated.saved_for_backward_bytes AS saved_isolated_bytes,
    coalesce(context.output_bytes, isolated.output_bytes) AS output_bytes
FROM module
LEFT JOIN (
    (SELECT * FROM memory WHERE scope = 'context') AS context
    FULL JOIN (SELECT * FROM memory WHERE scope = 'isolated') AS isolated USING (module_id, phase)
) USING (module_id)
ORDER BY module.run_id, module.ordinal, phase;
COMMENT ON VIEW memory_by_module IS 'Where the bytes are: per module and phase, children included';
COMMENT ON COLUMN memory_by_module.run_id IS 'Recording';
COMMENT ON COLUMN memory_by_module.path IS 'Module path; empty for the root';
COMMENT ON COLUMN memory_by_module.class IS 'Class name';
COMMENT ON COLUMN memory_by_module.phase IS 'Phase; NULL for a module that was never called';
COMMENT ON COLUMN memory_by_module.parameter_bytes IS 'Bytes of its parameters, a shared one once';
COMMENT ON COLUMN memory_by_module.buffer_bytes IS 'Bytes of its buffers';
COMMENT ON COLUMN memory_by_module.peak_context_bytes IS
    'Most bytes in use during its largest call above those at its begin, in the step';
COMMENT ON COLUMN memory_by_module.peak_isolated_bytes IS 'The same bytes alone';
COMMENT ON COLUMN memory_by_module.saved_context_bytes IS
    'Bytes of activations that its calls keep for the backward, in the step';
COMMENT ON COLUMN memory_by_module.saved_isolated_bytes IS 'The same bytes alone';
COMMENT ON COLUMN memory_by_module.output_bytes IS 'Bytes of the outputs of its largest call';
