UPDATE op SET dur_ns = greatest($end - start_ns, 0)
WHERE trace_id = $trace_id AND dur_ns NOT BETWEEN 0 AND $limit;
UPDATE annotation SET dur_ns = greatest($end - start_ns, 0)
WHERE trace_id = $trace_id AND dur_ns NOT BETWEEN 0 AND $limit;
UPDATE raw_launch SET dur_ns = greatest($end - start_ns, 0)
WHERE dur_ns NOT BETWEEN 0 AND $limit;
UPDATE raw_frame SET dur_ns = greatest($end - start_ns, 0)
WHERE dur_ns NOT BETWEEN 0 AND $limit;
