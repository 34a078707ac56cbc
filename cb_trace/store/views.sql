-- The public views (DESIGN section 4). They read stored results. Per step means: the mean over the
-- recorded steps. The kernel_diff view stands in its own file.

CREATE VIEW compare AS
SELECT
    module.run_id,
    cost.deployment,
    module.path,
    module.class,
    cost.phase,
    context.ts_ns,
    context.dur_ns,
    'https://ui.perfetto.dev/#!/?url=http%3A%2F%2F127.0.0.1%3A9001%2Fannotated.json.gz&ts='
        || context.ts_ns || '&dur=' || context.dur_ns AS perfetto_url,
    coalesce(context.calls, 0) AS calls,
    coalesce(graphed.kernels, context.kernels) AS kernels,
    coalesce(graphed.kernel_ns, context.kernel_ns) / 1e3 AS context_us,
    coalesce(graphed.busy_ns, context.busy_ns) / 1e3 AS busy_us,
    coalesce(graphed.exposed_ns, context.exposed_ns) / 1e3 AS exposed_us,
    cost.ns / 1e3 AS cost_us,
    marginal.ns / 1e3 AS marginal_us,
    hot.wall_ns / 1e3 AS isolated_us,
    hot.busy_ns / 1e3 AS isolated_gpu_us,
    CASE WHEN cold.isolated_from <> 'partial' OR hot.isolated_from = 'partial'
        THEN cold.busy_ns / 1e3 END AS isolated_cold_us,
    CASE WHEN hot.isolated_from <> 'partial' THEN (hot.wall_ns - cost.ns) / 1e3 END AS error_us,
    CASE WHEN hot.isolated_from <> 'partial' THEN hot.wall_ns / nullif(cost.ns, 0) - 1 END
        AS error_ratio,
    _terms.launch_ns / 1e3 AS launch_us,
    _terms.cache_ns / 1e3 AS cache_us,
    _terms.kernel_choice_ns / 1e3 AS kernel_choice_us,
    _terms.fusion_ns / 1e3 AS fusion_us,
    _terms.overlap_ns / 1e3 AS overlap_us,
    _terms.contention_ns / 1e3 AS contention_us,
    _terms.idle_ns / 1e3 AS idle_us,
    _terms.residual_ns / 1e3 AS residual_us,
    knockout.marginal_ns / 1e3 AS knockout_us,
    knockout.low_ns / 1e3 AS knockout_low_us,
    knockout.high_ns / 1e3 AS knockout_high_us,
    (hot.high_ns - hot.low_ns) / nullif(hot.wall_ns, 0) AS spread,
    verdict.text AS verdict,
    hot.isolated_from,
    bounds.low_ns / 1e3 AS cost_low_us,
    bounds.high_ns / 1e3 AS cost_high_us,
    hot.low_ns / 1e3 AS isolated_low_us,
    hot.high_ns / 1e3 AS isolated_high_us,
    faster.factor AS speedup_factor,
    faster.saved_ns / 1e3 AS speedup_us,
    faster.low_ns / 1e3 AS speedup_low_us,
    faster.high_ns / 1e3 AS speedup_high_us,
    faster.predicted_ns / 1e3 AS speedup_predicted_us
FROM _cost AS cost
JOIN module USING (module_id)
LEFT JOIN module_context AS context
    ON context.module_id = cost.module_id AND context.phase = cost.phase
LEFT JOIN graph_context AS graphed
    ON graphed.module_id = cost.module_id
    AND graphed.phase = cost.phase
    AND cost.deployment = 'graph'
LEFT JOIN _isolated AS hot
    ON hot.module_id = cost.module_id AND hot.phase = cost.phase AND hot.condition = 'hot'
LEFT JOIN _isolated AS cold
    ON cold.module_id = cost.module_id AND cold.phase = cost.phase AND cold.condition = 'cold'
LEFT JOIN cost_bounds AS bounds
    ON bounds.module_id = cost.module_id
    AND bounds.phase = cost.phase
    AND bounds.deployment = cost.deployment
LEFT JOIN _terms
    ON _terms.module_id = cost.module_id
    AND _terms.phase = cost.phase
    AND _terms.deployment = cost.deployment
LEFT JOIN marginal
    ON marginal.module_id = cost.module_id
    AND marginal.phase = cost.phase
    AND marginal.deployment = cost.deployment
    AND marginal.kind = 'marginal'
LEFT JOIN knockout
    ON knockout.module_id = cost.module_id
    AND knockout.phase = cost.phase
    AND knockout.deployment = cost.deployment
LEFT JOIN ( -- a module may have run on several parts of its batch: the largest part
    SELECT * FROM speedup
    QUALIFY row_number() OVER (
        PARTITION BY module_id, phase, deployment ORDER BY saved_ns IS NULL, factor
    ) = 1
) AS faster
    ON faster.module_id = cost.module_id
    AND faster.phase = cost.phase
    AND faster.deployment = cost.deployment
LEFT JOIN verdict
    ON verdict.module_id = cost.module_id
    AND verdict.phase = cost.phase
    AND verdict.deployment = cost.deployment
ORDER BY module.run_id, cost.deployment, module.ordinal, cost.phase;
COMMENT ON VIEW compare IS
    'Per module and phase, children included: cost in the step, cost alone, the error between '
    'them and its terms';
COMMENT ON COLUMN compare.run_id IS 'Recording';
COMMENT ON COLUMN compare.deployment IS 'Way of running the row is about: eager or graph';
COMMENT ON COLUMN compare.path IS 'Module path; empty for the root';
COMMENT ON COLUMN compare.class IS 'Class name';
COMMENT ON COLUMN compare.phase IS 'forward, backward, recompute, optimizer or step';
COMMENT ON COLUMN compare.ts_ns IS
    'Start of the first call, of a module without one of its first kernel, ns on the trace''s axis';
COMMENT ON COLUMN compare.dur_ns IS 'Duration of that call or kernel, ns';
COMMENT ON COLUMN compare.perfetto_url IS
    'Opens that call in Perfetto, while ''cb-trace perfetto'' serves the annotated trace';
COMMENT ON COLUMN compare.calls IS 'Calls a step; 0 for a container that is never called, in a backward, and in compiled code';
COMMENT ON COLUMN compare.kernels IS 'Device activities a step';
COMMENT ON COLUMN compare.context_us IS
    'Sum of kernel durations in context (K) a step, us; of deployment graph in its profiled runs, '
    'where there are any, else as in the step they were captured from; so are the next two';
COMMENT ON COLUMN compare.busy_us IS 'Union of kernel intervals in context (U) a step, us; of a fused kernel the share';
COMMENT ON COLUMN compare.exposed_us IS
    'Part of busy_us in which no kernel outside the module runs (X), us';
COMMENT ON COLUMN compare.cost_us IS
    'Part of the step that the module owns; parts sum to the step, us';
COMMENT ON COLUMN compare.marginal_us IS
    'What the step would lose without the module, predicted, us; NULL where not computed';
COMMENT ON COLUMN compare.isolated_us IS 'Alone, back to back, bare wall a step, us';
COMMENT ON COLUMN compare.isolated_gpu_us IS
    'Alone, back to back, union of kernel intervals a step, us; NULL where a part of it was not profiled';
COMMENT ON COLUMN compare.isolated_cold_us IS
    'Alone, L2 flushed before each call, union of kernel intervals a step, us; NULL where a part of '
    'isolated_us was not measured so';
COMMENT ON COLUMN compare.error_us IS
    'isolated_us less cost_us, us; NULL where isolated_us is partial, which has no error';
COMMENT ON COLUMN compare.error_ratio IS
    'isolated_us over cost_us, less 1, ratio; NULL where isolated_us is partial';
COMMENT ON COLUMN compare.launch_us IS
    'Part of error_us: the host launches slower than the device works, alone, us';
COMMENT ON COLUMN compare.cache_us IS 'Part of error_us: same kernels, warmer or colder cache, us';
COMMENT ON COLUMN compare.kernel_choice_us IS 'Part of error_us: same operator, another kernel, us';
COMMENT ON COLUMN compare.fusion_us IS 'Part of error_us: kernels that exist on one side only, us';
COMMENT ON COLUMN compare.overlap_us IS 'Part of error_us: kernels that run beside others, us';
COMMENT ON COLUMN compare.contention_us IS
    'Part of error_us: kernels slowed by another stream, us; NULL without a sequence run';
COMMENT ON COLUMN compare.idle_us IS
    'Part of error_us: idle time that the module owns in the step, us';
COMMENT ON COLUMN compare.residual_us IS
    'Part of error_us: same kernels where nothing should differ, us; NULL without a sequence run';
COMMENT ON COLUMN compare.knockout_us IS
    'What the step loses without the module, measured, us; NULL where not measured';
COMMENT ON COLUMN compare.knockout_low_us IS 'Lower bound of knockout_us, us';
COMMENT ON COLUMN compare.knockout_high_us IS 'Upper bound of knockout_us, us';
COMMENT ON COLUMN compare.spread IS 'High less low bound of isolated_us over isolated_us, ratio';
COMMENT ON COLUMN compare.verdict IS 'One sentence: which number to believe, and why';
COMMENT ON COLUMN compare.isolated_from IS
    'replay (measured itself), shared (an identical module was measured), children (sum over '
    'modules below it), partial (that sum, with some not measured)';
COMMENT ON COLUMN compare.cost_low_us IS 'Lower bound of cost_us, us';
COMMENT ON COLUMN compare.cost_high_us IS
    'Upper bound of cost_us, us; the error is within noise where the two intervals meet';
COMMENT ON COLUMN compare.isolated_low_us IS 'Lower bound of isolated_us, us';
COMMENT ON COLUMN compare.isolated_high_us IS 'Upper bound of isolated_us, us';
COMMENT ON COLUMN compare.speedup_factor IS
    'The module also ran on one factor-th of its batch (of several, the least factor); NULL where not '
    'measured';
COMMENT ON COLUMN compare.speedup_us IS 'What the step gained by that, measured, us';
COMMENT ON COLUMN compare.speedup_low_us IS 'Lower bound of speedup_us, us';
COMMENT ON COLUMN compare.speedup_high_us IS 'Upper bound of speedup_us, us';
COMMENT ON COLUMN compare.speedup_predicted_us IS
    'What the simulator says the step gains where the module takes one factor-th of its time, us';

CREATE VIEW step_partition AS
SELECT
    partition.run_id,
    partition.deployment,
    module.path,
    module.class,
    partition.phase,
    partition.kind,
    partition.ns,
    partition.ns / 1e3 AS us,
    partition.low_ns / 1e3 AS low_us,
    partition.high_ns / 1e3 AS high_us,
    partition.ns / nullif(sum(partition.ns) OVER step, 0) AS share
FROM partition
LEFT JOIN module USING (module_id)
WINDOW step AS (PARTITION BY partition.run_id, partition.deployment)
ORDER BY partition.run_id, partition.deployment, module.ordinal, partition.phase, partition.kind;
COMMENT ON VIEW step_partition IS
    'The step split over modules (self time, glue included) and idle; the parts sum to the step';
COMMENT ON COLUMN step_partition.run_id IS 'Recording';
COMMENT ON COLUMN step_partition.deployment IS 'eager or graph';
COMMENT ON COLUMN step_partition.path IS 'Module path; NULL for unattributed and profiled_excess';
COMMENT ON COLUMN step_partition.class IS 'Class name';
COMMENT ON COLUMN step_partition.phase IS 'Phase';
COMMENT ON COLUMN step_partition.kind IS
    'busy, idle_host, idle_gap, idle_sync, idle_copy, unattributed or profiled_excess';
COMMENT ON COLUMN step_partition.ns IS 'Part of the step, ns';
COMMENT ON COLUMN step_partition.us IS 'Part of the step, us';
COMMENT ON COLUMN step_partition.low_us IS 'Lower bound, us';
COMMENT ON COLUMN step_partition.high_us IS 'Upper bound, us';
COMMENT ON COLUMN step_partition.share IS 'Part of the step, ratio';

-- Device time by trace, then what happened to events on the way in. In a trace of replays the
-- kernels between the measured calls (warm-up, cache flush) belong to none.
CREATE VIEW coverage AS
WITH placed AS (
    SELECT
        kernel.trace_id,
        CASE WHEN part.module_id IS NULL THEN 'unattributed' ELSE 'attributed' END AS status,
        part.phase,
        part.method,
        part.confidence,
        part.reason,
        part.ns
    FROM kernel
    JOIN kernel_module AS part USING (kernel_id)
), replayed AS (
    SELECT
        kernel.trace_id,
        CASE WHEN call.kernel_id IS NULL THEN 'between replays' ELSE 'replay' END AS status,
        NULL AS phase,
        NULL AS method,
        NULL AS confidence,
        NULL AS reason,
        kernel.dur_ns AS ns
    FROM kernel
    ANTI JOIN kernel_module USING (kernel_id)
    JOIN trace USING (trace_id)
    LEFT JOIN (SELECT DISTINCT kernel_id FROM replay_kernel) AS call USING (kernel_id)
    WHERE trace.role = 'isolated'
), unplaced AS (
    SELECT
        kernel.trace_id, 'unattributed' AS status, NULL AS phase, NULL AS method,
        NULL AS confidence, 'not examined' AS reason, kernel.dur_ns AS ns
    FROM kernel
    ANTI JOIN kernel_module USING (kernel_id)
    JOIN trace USING (trace_id)
    WHERE trace.role <> 'isolated'
), part AS (
    SELECT * FROM placed
    UNION ALL SELECT * FROM replayed
    UNION ALL SELECT * FROM unplaced
), summed AS (
    SELECT
        trace_id, status, phase, method, confidence, reason,
        count(*) AS events,
        coalesce(sum(ns), 0)::BIGINT AS ns,
        NULL::BIGINT AS flaw_ns
    FROM part
    GROUP BY ALL
    UNION ALL
    SELECT trace_id, 'noted', NULL, NULL, NULL, reason, events, NULL, ns FROM drop
)
SELECT
    trace.run_id,
    summed.trace_id,
    trace.role,
    trace.rank,
    summed.status,
    summed.phase,
    summed.method,
    summed.confidence,
    summed.reason,
    summed.events,
    summed.ns,
    summed.ns / 1e3 AS us,
    summed.ns / nullif(sum(summed.ns) OVER (PARTITION BY summed.trace_id), 0) AS share,
    summed.flaw_ns
FROM summed
JOIN trace USING (trace_id)
ORDER BY summed.trace_id, summed.status, summed.ns DESC NULLS LAST, summed.reason;
COMMENT ON VIEW coverage IS
    'Where every nanosecond of device time went; ns sums to the device time of the trace exactly';
COMMENT ON COLUMN coverage.run_id IS 'Recording';
COMMENT ON COLUMN coverage.trace_id IS 'Trace file';
COMMENT ON COLUMN coverage.role IS 'context, sequence, graph, isolated, foreign or capture';
COMMENT ON COLUMN coverage.rank IS 'Rank of the trace';
COMMENT ON COLUMN coverage.status IS
    'attributed, unattributed, replay, between replays (warm-up, cache flush), or noted '
    '(repaired, dropped, clamped, unlinked on reading)';
COMMENT ON COLUMN coverage.phase IS 'Phase';
COMMENT ON COLUMN coverage.method IS 'Evidence of the attribution';
COMMENT ON COLUMN coverage.confidence IS
    'How sure: exact, matched (by name and order), split (over several modules), none';
COMMENT ON COLUMN coverage.reason IS 'Why unattributed, or what was noted';
COMMENT ON COLUMN coverage.events IS
    'Device activities, one of several modules once a module; for noted rows, events of any kind';
COMMENT ON COLUMN coverage.ns IS
    'Device time, ns; NULL for noted rows, which count it again or never had any';
COMMENT ON COLUMN coverage.us IS 'Device time, us';
COMMENT ON COLUMN coverage.share IS 'Part of the device time of the trace, ratio';
COMMENT ON COLUMN coverage.flaw_ns IS 'Duration of the noted events, ns';

CREATE VIEW fused_kernel AS
WITH fused AS (
    SELECT kernel_id, count(DISTINCT module_id) AS modules
    FROM kernel_module
    JOIN kernel USING (kernel_id)
    JOIN trace USING (trace_id)
    WHERE module_id IS NOT NULL
        AND trace.role IN ('context', 'foreign')
    GROUP BY kernel_id
    HAVING count(DISTINCT module_id) > 1
)
SELECT
    module.run_id,
    kernel.kernel_id,
    kernel.step,
    kernel.name,
    kernel.dur_ns / 1e3 AS kernel_us,
    fused.modules,
    module.path,
    part.phase,
    part.share,
    part.ns / 1e3 AS us,
    part.bytes,
    part.method
FROM fused
JOIN kernel USING (kernel_id)
JOIN kernel_module AS part USING (kernel_id)
JOIN module USING (module_id)
ORDER BY kernel.kernel_id, part.share DESC, module.ordinal;
COMMENT ON VIEW fused_kernel IS 'Kernels of the step that belong to several modules, a row a module';
COMMENT ON COLUMN fused_kernel.run_id IS 'Recording';
COMMENT ON COLUMN fused_kernel.kernel_id IS 'Device activity';
COMMENT ON COLUMN fused_kernel.step IS 'Step';
COMMENT ON COLUMN fused_kernel.name IS 'Kernel';
COMMENT ON COLUMN fused_kernel.kernel_us IS 'Duration of the whole kernel, us';
COMMENT ON COLUMN fused_kernel.modules IS 'Modules that share the kernel, count';
COMMENT ON COLUMN fused_kernel.path IS 'Module path';
COMMENT ON COLUMN fused_kernel.phase IS 'Phase';
COMMENT ON COLUMN fused_kernel.share IS 'The module''s part of the kernel, ratio';
COMMENT ON COLUMN fused_kernel.us IS 'The module''s part of the kernel, us';
COMMENT ON COLUMN fused_kernel.bytes IS
    'Bytes that the module''s part moves by its tensors'' sizes; NULL where not known';
COMMENT ON COLUMN fused_kernel.method IS 'Evidence of the attribution';
