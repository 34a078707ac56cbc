-- Where the bytes are.
-- $run_id
SELECT * FROM memory_by_module WHERE run_id = $run_id
