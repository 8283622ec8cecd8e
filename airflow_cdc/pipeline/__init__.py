"""Change events to Delta tables, in PySpark; knows nothing of Airflow."""

from airflow_cdc.runtime.own_pyspark import use_own_pyspark

use_own_pyspark()
