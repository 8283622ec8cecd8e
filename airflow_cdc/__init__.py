"""Archived change events become exact Delta tables, scheduled by Airflow."""

__version__ = "0.1.0"
