-- The recording to compare: the newest of the profile.
SELECT
  run_id, workload, mode, dtype, device_name, torch_version, created_at, step_bare_ns,
  step_bare_low_ns, step_bare_high_ns, step_profiled_ns, dilation
FROM run
ORDER BY created_at DESC NULLS LAST, run_id
LIMIT 1
