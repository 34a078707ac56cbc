SELECT count(*)
FROM raw_launch
WHERE NOT regexp_matches(category, '^(cuda|hip|xpu)_|^Runtime$|^Driver$')
