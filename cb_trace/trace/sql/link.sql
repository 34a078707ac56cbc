-- kernel -> launch by correlation id, in any runtime or driver category (traces.md row 27).
CREATE OR REPLACE TEMP TABLE raw_choice AS
SELECT kernel_id, launch_id, raw_launch.start_ns AS launch_ns, raw_launch.thread AS launch_thread
FROM raw_device LEFT JOIN raw_launch USING (correlation);
