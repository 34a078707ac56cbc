-- Kernels are matched one by one as analysis/matching.py does it for the terms (a test holds the
-- two together): same operator, name, grid and block; then kernels of the step without an operator
-- by name, grid and block; then another kernel of the same operator (changed), with no partner where
-- one side ran more of them. Each in order of execution; what is left ran on one side only, and so
-- did what the module owns in part.
CREATE VIEW kernel_diff AS
WITH alone_module AS (
    SELECT module_id, phase FROM _measured WHERE condition = 'hot'
), recorded AS (
    SELECT trace.trace_id, (SELECT count(*) FROM step WHERE step.trace_id = trace.trace_id) AS steps
    FROM trace
    WHERE trace.role = 'context'
    QUALIFY row_number() OVER (PARTITION BY trace.run_id ORDER BY trace.trace_id) = 1
), part_here AS (
    SELECT
        _descendant.ancestor_id AS module_id,
        part.phase,
        kernel.kernel_id,
        kernel.step,
        kernel.start_ns,
        coalesce(op.name, '') AS op,
        kernel.name,
        coalesce(kernel.grid, '') AS grid,
        coalesce(kernel.block, '') AS block,
        recorded.steps,
        sum(part.share) AS share,
        sum(part.ns) AS ns
    FROM kernel
    JOIN recorded ON recorded.trace_id = kernel.trace_id
    JOIN kernel_module AS part USING (kernel_id)
    JOIN _descendant ON _descendant.module_id = part.module_id
    SEMI JOIN alone_module
        ON alone_module.module_id = _descendant.ancestor_id
        AND alone_module.phase = part.phase
    LEFT JOIN op ON op.op_id = kernel.op_id
    WHERE kernel.step IS NOT NULL
    GROUP BY ALL
), run_here AS (
    SELECT
        *,
        row_number() OVER (
            PARTITION BY module_id, phase, step, op, name, grid, block ORDER BY start_ns, kernel_id
        ) AS number,
        row_number() OVER (PARTITION BY module_id, phase, step ORDER BY start_ns, kernel_id) AS place
    FROM part_here
), here AS MATERIALIZED (
    SELECT
        module_id, phase, op, name, grid, block,
        bool_and(share > 1 - 1e-6) AS whole,
        sum(share) / any_value(steps) AS kernels,
        sum(ns) / any_value(steps) AS ns,
        row_number() OVER (ORDER BY module_id, phase, min(place), op, name, grid, block, number) AS id
    FROM run_here
    GROUP BY module_id, phase, op, name, grid, block, number
), run_there AS (
    SELECT
        run.replay_id, run.position, kernel.dur_ns,
        coalesce(op.name, '') AS op,
        kernel.name,
        coalesce(kernel.grid, '') AS grid,
        coalesce(kernel.block, '') AS block,
        row_number() OVER (
            PARTITION BY run.replay_id, run.iteration, coalesce(op.name, ''), kernel.name,
                coalesce(kernel.grid, ''), coalesce(kernel.block, '')
            ORDER BY run.position
        ) AS number
    FROM replay_kernel AS run
    JOIN kernel USING (kernel_id)
    LEFT JOIN op ON op.op_id = kernel.op_id
), measurement AS (
    SELECT replay_id, count(DISTINCT iteration) AS iterations FROM replay_kernel GROUP BY ALL
), once_there AS (
    SELECT
        run_there.replay_id, op, name, grid, block, number,
        min(position) AS place,
        count(*) / any_value(iterations) AS kernels,
        sum(dur_ns) / any_value(iterations) AS ns
    FROM run_there
    JOIN measurement USING (replay_id)
    GROUP BY ALL
), there AS MATERIALIZED (
    SELECT
        replay.module_id, replay.phase, op, name, grid, block, kernels, ns,
        row_number() OVER (
            ORDER BY replay.call_index, replay.replay_id, copy.copy, place, op, name, grid, block,
                number
        ) AS id
    FROM replay
    SEMI JOIN alone_module USING (module_id, phase)
    CROSS JOIN LATERAL unnest(range(replay.calls)) AS copy (copy)
    JOIN once_there ON once_there.replay_id = replay.measured_id
    WHERE replay.condition = 'hot'
), same_kernel AS MATERIALIZED (
    SELECT mine.id AS here_id, theirs.id AS there_id
    FROM (
        SELECT *, row_number() OVER (alike ORDER BY id) AS turn FROM here WHERE whole
        WINDOW alike AS (PARTITION BY module_id, phase, op, name, grid, block)
    ) AS mine
    JOIN (
        SELECT *, row_number() OVER (alike ORDER BY id) AS turn FROM there
        WINDOW alike AS (PARTITION BY module_id, phase, op, name, grid, block)
    ) AS theirs USING (module_id, phase, op, name, grid, block, turn)
), same_name AS MATERIALIZED (
    SELECT mine.id AS here_id, theirs.id AS there_id
    FROM (
        SELECT *, row_number() OVER (alike ORDER BY id) AS turn
        FROM here
        WHERE whole AND op = '' AND id NOT IN (SELECT here_id FROM same_kernel)
        WINDOW alike AS (PARTITION BY module_id, phase, name, grid, block)
    ) AS mine
    JOIN (
        SELECT *, row_number() OVER (alike ORDER BY id) AS turn
        FROM there
        WHERE id NOT IN (SELECT there_id FROM same_kernel)
        WINDOW alike AS (PARTITION BY module_id, phase, name, grid, block)
    ) AS theirs USING (module_id, phase, name, grid, block, turn)
), same AS MATERIALIZED (
    FROM same_kernel UNION ALL FROM same_name
), changed AS MATERIALIZED (
    SELECT mine.id AS here_id, theirs.id AS there_id
    FROM (
        SELECT *, row_number() OVER (PARTITION BY module_id, phase, op ORDER BY id) AS turn
        FROM here
        WHERE whole AND op <> '' AND id NOT IN (SELECT here_id FROM same)
    ) AS mine
    JOIN (
        SELECT *, row_number() OVER (PARTITION BY module_id, phase, op ORDER BY id) AS turn
        FROM there
        WHERE id NOT IN (SELECT there_id FROM same)
    ) AS theirs USING (module_id, phase, op, turn)
), choice AS (
    SELECT DISTINCT module_id, phase, op, 'changed' AS status
    FROM changed
    JOIN here ON here.id = changed.here_id
), pair AS (
    SELECT here_id, there_id, 'same' AS status FROM same
    UNION ALL
    SELECT here_id, there_id, 'changed' FROM changed
    UNION ALL
    SELECT id, NULL, coalesce(if(whole, status, NULL), 'only here')
    FROM here
    LEFT JOIN choice USING (module_id, phase, op)
    WHERE id NOT IN (SELECT here_id FROM same UNION ALL SELECT here_id FROM changed)
    UNION ALL
    SELECT NULL, id, coalesce(status, 'only there')
    FROM there
    LEFT JOIN choice USING (module_id, phase, op)
    WHERE id NOT IN (SELECT there_id FROM same UNION ALL SELECT there_id FROM changed)
), difference AS (
    SELECT
        coalesce(here.module_id, there.module_id) AS module_id,
        coalesce(here.phase, there.phase) AS phase,
        coalesce(nullif(here.op, ''), nullif(there.op, '')) AS op,
        pair.status,
        here.name AS context_kernel, there.name AS isolated_kernel,
        nullif(here.grid, '') AS context_grid, nullif(there.grid, '') AS isolated_grid,
        nullif(here.block, '') AS context_block, nullif(there.block, '') AS isolated_block,
        coalesce(sum(here.kernels), 0) AS context_kernels,
        coalesce(sum(there.kernels), 0) AS isolated_kernels,
        coalesce(sum(here.ns), 0) AS context_ns,
        coalesce(sum(there.ns), 0) AS isolated_ns,
        min(here.id) AS here_first,
        min(there.id) AS there_first
    FROM pair
    LEFT JOIN here ON here.id = pair.here_id
    LEFT JOIN there ON there.id = pair.there_id
    GROUP BY ALL
)
SELECT
    module.run_id,
    module.path,
    module.class,
    difference.phase,
    difference.op,
    difference.status,
    difference.context_kernel,
    difference.isolated_kernel,
    difference.context_kernels,
    difference.isolated_kernels,
    difference.context_ns / 1e3 AS context_us,
    difference.isolated_ns / 1e3 AS isolated_us,
    (difference.isolated_ns - difference.context_ns) / 1e3 AS difference_us,
    difference.context_grid,
    difference.isolated_grid,
    difference.context_block,
    difference.isolated_block
FROM difference
JOIN module USING (module_id)
ORDER BY
    module.run_id, module.ordinal, difference.phase,
    difference.here_first NULLS LAST, difference.there_first;
COMMENT ON VIEW kernel_diff IS
    'Per module that was replayed, children included: its kernels in context against its '
    'kernels alone, per step';
COMMENT ON COLUMN kernel_diff.run_id IS 'Recording';
COMMENT ON COLUMN kernel_diff.path IS 'Module path';
COMMENT ON COLUMN kernel_diff.class IS 'Class name';
COMMENT ON COLUMN kernel_diff.phase IS 'Phase';
COMMENT ON COLUMN kernel_diff.op IS 'Operator that launched the kernels; NULL where unknown on both sides';
COMMENT ON COLUMN kernel_diff.status IS
    'same, changed (same operator, other kernel or launch shape), only here (in context) or only '
    'there (alone)';
COMMENT ON COLUMN kernel_diff.context_kernel IS 'Kernel in context';
COMMENT ON COLUMN kernel_diff.isolated_kernel IS 'Kernel alone';
COMMENT ON COLUMN kernel_diff.context_kernels IS 'Runs in context a step';
COMMENT ON COLUMN kernel_diff.isolated_kernels IS 'Runs alone a step';
COMMENT ON COLUMN kernel_diff.context_us IS 'Duration in context a step, as profiled, us';
COMMENT ON COLUMN kernel_diff.isolated_us IS 'Duration alone a step, as profiled, us';
COMMENT ON COLUMN kernel_diff.difference_us IS 'isolated_us less context_us, us';
COMMENT ON COLUMN kernel_diff.context_grid IS 'Grid in context; it can be all that changed';
COMMENT ON COLUMN kernel_diff.isolated_grid IS 'Grid alone';
COMMENT ON COLUMN kernel_diff.context_block IS 'Block in context';
COMMENT ON COLUMN kernel_diff.isolated_block IS 'Block alone';
