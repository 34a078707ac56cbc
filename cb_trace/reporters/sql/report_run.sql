-- Everything that is stored about one recording.
-- $run_id
SELECT * FROM run WHERE run_id = $run_id
