"""Words shared by the Airflow layer and the Spark pipeline; standard library only."""
