DELETE FROM op WHERE trace_id = $trace_id AND start_ns = 0;
DELETE FROM annotation WHERE trace_id = $trace_id AND start_ns = 0;
DELETE FROM raw_launch WHERE start_ns = 0;
DELETE FROM raw_frame WHERE start_ns = 0;
