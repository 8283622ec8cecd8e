"""What all uses of the native libraries (DuckDB, delta-rs) share."""
