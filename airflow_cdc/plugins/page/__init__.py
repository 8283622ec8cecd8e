"""The page in Airflow's UI: what it answers, from lakes, without Spark. Loaded in the API server only."""
