"""An archive and a lake of one test's own, to which a live Airflow's connections lead."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from airflow_cdc.pipeline.upkeep.inspect_lake import summarize_flows
from tests.support.events import numbered, sqlserver, write_records
from tests.support.tables import read_rows
from tests.system.live_airflow import LiveAirflow


class Shop:
    """Lands files in the archive and reads what the lake has of them."""

    def __init__(self, airflow: LiveAirflow, folder: Path) -> None:
        self.airflow, self.archive, self.lake = airflow, folder / "archive", folder / "lake"
        self._offset = 0
        self.archive.mkdir()
        for conn_id, conn_type, place in (
            ("cdc_archive_default", "cdc_archive", self.archive),
            ("cdc_lake_default", "cdc_lake", self.lake),
        ):
            airflow.disconnect(conn_id)
            airflow.connect(conn_id, conn_type, str(place))

    def merge_by_spark(self) -> None:
        """Let Spark merge: the native engine would be done before anything can be killed."""
        self.airflow.disconnect("cdc_lake_default")
        self.airflow.connect("cdc_lake_default", "cdc_lake", str(self.lake), extra={"engine": "spark"})

    def land(self, *, tables: int = 1, rows: int = 20, below: str = ".") -> None:
        """Land one file a table, each with new rows, in a folder of the archive."""
        for table in range(tables):
            topic = f"server1.testDB.dbo.t{table}"
            numbers = range(self._offset + 1, self._offset + rows + 1)
            records = [sqlserver("c", commit=number, change=number, after={"id": number, "name": "x"}, topic=topic) for number in numbers]
            write_records(self.archive / below / f"{topic}-{self._offset}.jsonl", numbered(records, first=self._offset))
        self._offset += rows

    def rows(self, spark: SparkSession) -> dict[str, int]:
        """Return the number of rows by table."""
        flows = [flow.flow for flow in summarize_flows(spark, str(self.lake)) if flow.microbatches]
        return {flow.rsplit(".", 1)[-1]: len(read_rows(spark, str(self.lake), flow).rows) for flow in flows}

    def commits(self) -> list[Path]:
        """Return the commit markers."""
        return sorted(self.lake.glob("_cdc/flows/*/commits/*.json"))
