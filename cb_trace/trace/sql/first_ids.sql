SELECT
  (SELECT coalesce(max(thread) + 1, 0) FROM thread),
  (SELECT coalesce(max(op_id) + 1, 0) FROM op),
  (SELECT coalesce(max(annotation_id) + 1, 0) FROM annotation),
  (SELECT coalesce(max(python_id) + 1, 0) FROM python_module),
  (SELECT coalesce(max(launch_id) + 1, 0) FROM launch),
  (SELECT coalesce(max(kernel_id) + 1, 0) FROM kernel)
