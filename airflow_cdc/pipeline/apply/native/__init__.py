"""The native engine: DuckDB decodes and folds a plain microbatch, delta-rs merges it, with the effects and the report of Spark's steps.

It takes only what it surely reads as Spark does; everything else goes the Spark way, whole, before anything is written.
"""
