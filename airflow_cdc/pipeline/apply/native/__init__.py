"""The native engine: DuckDB decodes and folds a plain microbatch, delta-rs merges it, with the effects and the report of Spark's steps."""
