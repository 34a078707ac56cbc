"""A profile as a table, JSON, or an annotated trace."""
