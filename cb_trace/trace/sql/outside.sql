SELECT count(*), TRY_CAST(sum(dur_ns) AS BIGINT)
FROM raw_device JOIN raw_link USING (kernel_id)
WHERE at_ns NOT BETWEEN $low AND $high - 1
