-- Work done and how near the hardware's limit.
-- $run_id
SELECT * FROM roofline WHERE run_id = $run_id
