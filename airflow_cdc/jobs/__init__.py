"""spark-submit entry points: arguments, pipeline, report; no logic."""
