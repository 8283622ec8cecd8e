"""``python -m airflow_cdc``: the command line."""

from airflow_cdc.cli import app

if __name__ == "__main__":
    app(prog_name="airflow-cdc")
