UPDATE raw_device
SET dur_ns = 0
WHERE flaw IN ('lost timing', 'negative duration', 'overflowing duration');
