-- One row about all slices of the file: how many, how many have an odd time, how far they reach.
SELECT
  coalesce(sum(events) FILTER (WHERE kind NOT IN ('meta', 'begin', 'end', 'untimed', 'unphased')), 0),
  coalesce(sum(no_dur) FILTER (WHERE kind NOT IN ('meta', 'begin', 'end', 'untimed', 'unphased')), 0),
  coalesce(sum(odd_dur) FILTER (WHERE kind NOT IN ('meta', 'begin', 'end', 'untimed', 'unphased')), 0),
  coalesce(sum(zero_ts) FILTER (WHERE kind NOT IN ('meta', 'begin', 'end', 'untimed', 'unphased')), 0),
  min(first_ns) FILTER (WHERE kind NOT IN ('meta', 'begin', 'end', 'untimed', 'unphased')),
  max(last_start_ns) FILTER (WHERE kind NOT IN ('meta', 'begin', 'untimed', 'unphased')),
  max(last_end_ns) FILTER (WHERE kind NOT IN ('meta', 'begin', 'untimed', 'unphased')),
  coalesce(sum(fractions) FILTER (WHERE kind NOT IN ('meta', 'untimed', 'unphased')), 0)
FROM raw_total
