"""The DuckDB profile: schema, views, create, open, append."""
