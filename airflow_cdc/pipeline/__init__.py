"""Change events to Delta tables, in PySpark; knows nothing of Airflow."""
