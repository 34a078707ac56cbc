-- Kernels launched through the runtime of an accelerator that is neither CUDA, ROCm nor XPU.
INSERT INTO raw_total (kind, events, ns)
SELECT 'foreign', count(*), TRY_CAST(sum(raw_device.dur_ns) AS BIGINT)
FROM raw_device JOIN raw_choice USING (kernel_id) JOIN raw_launch USING (launch_id)
WHERE NOT regexp_matches(raw_launch.category, '^(cuda|hip|xpu)_|^Runtime$|^Driver$')
HAVING count(*) > 0;

DELETE FROM raw_device
WHERE kernel_id IN (
  SELECT kernel_id
  FROM raw_choice JOIN raw_launch USING (launch_id)
  WHERE NOT regexp_matches(raw_launch.category, '^(cuda|hip|xpu)_|^Runtime$|^Driver$')
);
