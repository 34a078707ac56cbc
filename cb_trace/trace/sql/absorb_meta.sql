INSERT INTO raw_meta
SELECT name, pid, tid, label
FROM raw_part
WHERE kind = 'meta' AND name IN ('process_name', 'thread_name');
