SELECT count(*), TRY_CAST(sum(raw_device.dur_ns) AS BIGINT)
FROM raw_device JOIN raw_link USING (kernel_id)
WHERE coalesce(launch_ns, raw_device.start_ns) NOT BETWEEN $low AND $high - 1
