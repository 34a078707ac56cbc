-- The number people use: the one in the name, else the position.
CREATE OR REPLACE TEMP VIEW numbered_step AS
SELECT
  *,
  coalesce(TRY_CAST(nullif(regexp_extract(name, '#(\d+)$', 1), '') AS BIGINT), step) AS number
FROM raw_step;
