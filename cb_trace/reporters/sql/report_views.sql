-- The views that this profile has.
SELECT view_name FROM duckdb_views() WHERE NOT internal
