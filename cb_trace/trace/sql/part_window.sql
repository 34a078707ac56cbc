DELETE FROM raw_device
WHERE kernel_id IN (SELECT kernel_id FROM raw_link WHERE at_ns NOT BETWEEN $low AND $high - 1);

DELETE FROM raw_launch WHERE start_ns NOT BETWEEN $low AND $high - 1;

DELETE FROM op
WHERE trace_id = $trace_id AND (start_ns >= $high OR start_ns + greatest(dur_ns, 1) <= $low);

DELETE FROM annotation
WHERE trace_id = $trace_id AND (start_ns >= $high OR start_ns + greatest(dur_ns, 1) <= $low);

DELETE FROM python_module
WHERE trace_id = $trace_id AND (start_ns >= $high OR start_ns + greatest(dur_ns, 1) <= $low);

-- steps are numbered anew, in raw_link as well
CREATE OR REPLACE TEMP TABLE raw_step AS
SELECT
  CAST(row_number() OVER (ORDER BY step) - 1 AS INTEGER) AS step,
  step AS old_step,
  * EXCLUDE (step)
FROM raw_step
WHERE start_ns >= $low AND start_ns + dur_ns <= $high;

CREATE OR REPLACE TEMP TABLE raw_link AS
SELECT raw_link.* EXCLUDE (step), raw_step.step
FROM raw_link LEFT JOIN raw_step ON raw_link.step = old_step;
