-- Kernels are matched by operator and name. What is left over is paired within an operator in the
-- order of first appearance (changed); an unpaired rest ran on one side only.
CREATE VIEW kernel_diff AS
WITH alone_module AS (
    SELECT module_id, phase FROM _measured WHERE condition = 'hot'
), steps AS (
    SELECT trace_id, count(*) AS steps FROM step GROUP BY ALL
), in_context AS (
    SELECT
        part.module_id,
        part.phase,
        coalesce(op.name, '') AS op,
        kernel.name,
        sum(part.share) / any_value(steps.steps) AS kernels,
        sum(part.ns) / any_value(steps.steps) AS ns,
        min(kernel.start_ns) AS first
    FROM kernel
    JOIN trace ON trace.trace_id = kernel.trace_id AND trace.role = 'context'
    JOIN steps ON steps.trace_id = kernel.trace_id
    JOIN kernel_module AS part USING (kernel_id)
    LEFT JOIN op ON op.op_id = kernel.op_id
    WHERE kernel.step IS NOT NULL AND part.module_id IS NOT NULL
    GROUP BY ALL
), here AS (
    SELECT
        _descendant.ancestor_id AS module_id, in_context.phase, in_context.op, in_context.name,
        sum(in_context.kernels) AS kernels, sum(in_context.ns) AS ns, min(in_context.first) AS first
    FROM in_context
    JOIN _descendant ON _descendant.module_id = in_context.module_id
    SEMI JOIN alone_module
        ON alone_module.module_id = _descendant.ancestor_id
        AND alone_module.phase = in_context.phase
    GROUP BY ALL
), measurement AS (
    SELECT replay_id, count(DISTINCT iteration) AS iterations FROM replay_kernel GROUP BY ALL
), there AS (
    SELECT
        replay.module_id,
        replay.phase,
        coalesce(op.name, '') AS op,
        kernel.name,
        sum(replay.calls / measurement.iterations) AS kernels,
        sum(replay.calls * kernel.dur_ns / measurement.iterations) AS ns,
        min(run.position) AS first
    FROM replay
    SEMI JOIN alone_module USING (module_id, phase)
    JOIN replay_kernel AS run ON run.replay_id = replay.measured_id
    JOIN measurement ON measurement.replay_id = run.replay_id
    JOIN kernel USING (kernel_id)
    LEFT JOIN op ON op.op_id = kernel.op_id
    WHERE replay.condition = 'hot'
    GROUP BY ALL
), matched AS MATERIALIZED (
    SELECT
        coalesce(here.module_id, there.module_id) AS module_id,
        coalesce(here.phase, there.phase) AS phase,
        coalesce(here.op, there.op) AS op,
        coalesce(here.name, there.name) AS name,
        coalesce(here.kernels, 0) AS here_kernels,
        coalesce(there.kernels, 0) AS there_kernels,
        here.ns / here.kernels AS here_ns,
        there.ns / there.kernels AS there_ns,
        least(coalesce(here.kernels, 0), coalesce(there.kernels, 0)) AS both_kernels,
        here.first AS here_first,
        there.first AS there_first
    FROM here
    FULL JOIN there
        ON there.module_id = here.module_id
        AND there.phase = here.phase
        AND there.op = here.op
        AND there.name = here.name
), only_here AS (
    SELECT
        module_id, phase, op, name, here_first AS first,
        here_kernels - both_kernels AS kernels,
        (here_kernels - both_kernels) * here_ns AS ns,
        row_number() OVER (PARTITION BY module_id, phase, op ORDER BY here_first, name) AS place
    FROM matched
    WHERE here_kernels - both_kernels > 1e-6
), only_there AS (
    SELECT
        module_id, phase, op, name, there_first AS first,
        there_kernels - both_kernels AS kernels,
        (there_kernels - both_kernels) * there_ns AS ns,
        row_number() OVER (PARTITION BY module_id, phase, op ORDER BY there_first, name) AS place
    FROM matched
    WHERE there_kernels - both_kernels > 1e-6
), difference AS (
    SELECT
        module_id, phase, op, 'same' AS status,
        name AS context_kernel, name AS isolated_kernel,
        both_kernels AS context_kernels, both_kernels AS isolated_kernels,
        both_kernels * here_ns AS context_ns, both_kernels * there_ns AS isolated_ns,
        here_first, there_first
    FROM matched
    WHERE both_kernels > 0
    UNION ALL
    SELECT
        coalesce(only_here.module_id, only_there.module_id),
        coalesce(only_here.phase, only_there.phase),
        coalesce(only_here.op, only_there.op),
        CASE
            WHEN only_there.name IS NULL THEN 'only here'
            WHEN only_here.name IS NULL THEN 'only there'
            ELSE 'changed'
        END,
        only_here.name, only_there.name,
        coalesce(only_here.kernels, 0), coalesce(only_there.kernels, 0),
        coalesce(only_here.ns, 0), coalesce(only_there.ns, 0),
        only_here.first, only_there.first
    FROM only_here
    FULL JOIN only_there
        ON only_there.module_id = only_here.module_id
        AND only_there.phase = only_here.phase
        AND only_there.op = only_here.op
        AND only_there.place = only_here.place
        AND only_here.op <> ''
)
SELECT
    module.run_id,
    module.path,
    module.class,
    difference.phase,
    nullif(difference.op, '') AS op,
    difference.status,
    difference.context_kernel,
    difference.isolated_kernel,
    difference.context_kernels,
    difference.isolated_kernels,
    difference.context_ns / 1e3 AS context_us,
    difference.isolated_ns / 1e3 AS isolated_us,
    (difference.isolated_ns - difference.context_ns) / 1e3 AS difference_us
FROM difference
JOIN module USING (module_id)
ORDER BY
    module.run_id, module.ordinal, difference.phase,
    difference.here_first NULLS LAST, difference.there_first, difference.context_kernel,
    difference.isolated_kernel;
COMMENT ON VIEW kernel_diff IS
    'Per module that was replayed, children included: its kernels in context against its '
    'kernels alone, per step';
COMMENT ON COLUMN kernel_diff.run_id IS 'Recording';
COMMENT ON COLUMN kernel_diff.path IS 'Module path';
COMMENT ON COLUMN kernel_diff.class IS 'Class name';
COMMENT ON COLUMN kernel_diff.phase IS 'Phase';
COMMENT ON COLUMN kernel_diff.op IS 'Operator that launched the kernels; NULL where unknown';
COMMENT ON COLUMN kernel_diff.status IS
    'same, changed (same operator, other kernel), only here (in context) or only there (alone)';
COMMENT ON COLUMN kernel_diff.context_kernel IS 'Kernel in context';
COMMENT ON COLUMN kernel_diff.isolated_kernel IS 'Kernel alone';
COMMENT ON COLUMN kernel_diff.context_kernels IS 'Runs in context a step';
COMMENT ON COLUMN kernel_diff.isolated_kernels IS 'Runs alone a step';
COMMENT ON COLUMN kernel_diff.context_us IS 'Duration in context a step, as profiled, us';
COMMENT ON COLUMN kernel_diff.isolated_us IS 'Duration alone a step, as profiled, us';
COMMENT ON COLUMN kernel_diff.difference_us IS 'isolated_us less context_us, us';
