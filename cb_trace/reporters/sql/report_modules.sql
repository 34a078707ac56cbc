-- The module tree of one recording, parents before children.
-- $run_id
SELECT module_id, path, class, parent_id, parameters, parameter_bytes, buffer_bytes
FROM module
WHERE run_id = $run_id
ORDER BY ordinal
