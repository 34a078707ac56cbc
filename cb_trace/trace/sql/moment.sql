-- The moment that decides about a kernel's step and window: its launch, else its own start. Steps
-- of one process do not overlap, so the last one begun is the one.
CREATE OR REPLACE TEMP TABLE raw_link AS
WITH moment AS (
  SELECT
    kernel_id,
    launch_id,
    launch_ns,
    coalesce(launch_ns, raw_device.start_ns) AS at_ns,
    flaw IS DISTINCT FROM 'lost timing' AS is_timed,
    CASE WHEN $one_process THEN '' ELSE raw_track.pid END AS pid
  FROM raw_device
  JOIN raw_choice USING (kernel_id)
  JOIN raw_track ON raw_track.thread = coalesce(launch_thread, raw_device.thread)
)
SELECT
  kernel_id,
  launch_id,
  launch_ns,
  at_ns,
  CASE WHEN is_timed AND at_ns < raw_step.start_ns + raw_step.dur_ns THEN step END AS step
FROM moment
ASOF LEFT JOIN raw_step ON moment.pid = raw_step.pid AND at_ns >= raw_step.start_ns;
