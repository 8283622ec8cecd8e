"""The Delta table: its description, its DDL and merges, and the commits in its log."""
