-- Kernels in context against kernels alone, of every module that was replayed; the largest first,
-- so that a cut takes the smallest.
-- $run_id, $most
SELECT
  path, phase, op, status, context_kernel, isolated_kernel,
  context_kernels, isolated_kernels, context_us, isolated_us
FROM kernel_diff
WHERE run_id = $run_id
ORDER BY greatest(context_us, isolated_us) DESC, path, phase, op, context_kernel, isolated_kernel
LIMIT $most
