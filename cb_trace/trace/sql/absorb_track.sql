-- Tracks seen first in this part, numbered in the order of the file.
INSERT INTO raw_track
SELECT
  $first_thread + (SELECT count(*) FROM raw_track)
    + row_number() OVER (ORDER BY min(first_row)) - 1,
  pid,
  tid
FROM raw_summary
WHERE kind IN ('op', 'launch', 'device', 'frame', 'annotation')
GROUP BY pid, tid
HAVING (pid, tid) NOT IN (SELECT (pid, tid) FROM raw_track);
