INSERT INTO raw_frame
SELECT thread, python_id, python_parent_id, start_ns, dur_ns, substr(name, 12)
FROM raw_part JOIN raw_track USING (pid, tid)
WHERE kind = 'frame';
