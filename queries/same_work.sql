-- Did each module do the same work alone as in the step?
--
-- Columns:
--   path              module path; empty for the root
--   phase             forward, backward, …
--   same              kernels a step that ran on both sides
--   changed           kernels a step in whose place another kernel of the same operator ran alone
--   only_step         kernels that ran in the step only
--   only_alone        kernels that ran alone only
--   casts_step        of only_step, those of casts and copies: alone, autocast's cache had them
--   casts_alone       of only_alone, those of casts and copies: in the step, the cache had them
--   differ_us         time a step of all that is not the same, both sides together, µs
--   work              what differs, in words
--
-- Variables: module, a module path and what it holds; all modules where not set.
-- Those that differ most come first.
-- No rows: no module, or not this one, was replayed itself.
--
-- Example:
--   duckdb -readonly profile.duckdb -cmd "SET VARIABLE module = 'h.0'" -f queries/same_work.sql
WITH kernel_row AS (
    SELECT
        *,
        op IN ('aten::_to_copy', 'aten::to', 'aten::copy_') AS is_cast
    FROM kernel_diff
    WHERE getvariable('module') IS NULL
        OR path = getvariable('module')
        OR starts_with(path, getvariable('module') || '.')
), summed AS (
    SELECT
        path,
        phase,
        coalesce(sum(context_kernels) FILTER (WHERE status = 'same'), 0) AS same,
        coalesce(sum(context_kernels) FILTER (WHERE status = 'changed'), 0) AS changed,
        coalesce(sum(context_kernels) FILTER (WHERE status = 'only here'), 0) AS only_step,
        coalesce(sum(isolated_kernels) FILTER (WHERE status = 'only there'), 0) AS only_alone,
        coalesce(sum(context_kernels) FILTER (WHERE status = 'only here' AND is_cast), 0)
            AS casts_step,
        coalesce(sum(isolated_kernels) FILTER (WHERE status = 'only there' AND is_cast), 0)
            AS casts_alone,
        coalesce(
            sum(coalesce(context_us, 0) + coalesce(isolated_us, 0)) FILTER (WHERE status <> 'same'),
            0
        ) AS differ_us
    FROM kernel_row
    GROUP BY path, phase
)
SELECT
    *,
    coalesce(
        nullif(
            concat_ws(
                '; ',
                CASE WHEN changed > 0 THEN printf('%g by another kernel alone', changed) END,
                CASE
                    WHEN casts_step > 0
                        THEN printf('%g casts or copies in the step only', casts_step)
                END,
                CASE
                    WHEN only_step > casts_step
                        THEN printf('%g others in the step only', only_step - casts_step)
                END,
                CASE
                    WHEN casts_alone > 0
                        THEN printf('%g casts or copies alone only', casts_alone)
                END,
                CASE
                    WHEN only_alone > casts_alone
                        THEN printf('%g others alone only', only_alone - casts_alone)
                END
            ),
            ''
        ),
        'the same'
    ) AS work
FROM summed
ORDER BY differ_us DESC, path, phase;
