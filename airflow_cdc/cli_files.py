"""``airflow-cdc files``: archived files that no run can read."""

from __future__ import annotations

from airflow_cdc.cli_common import AsJson, Lake, usage
from airflow_cdc.console import print_json, stdout_console, table
from airflow_cdc.model.state.lake import archives_in
from airflow_cdc.pipeline.spark.storage import file_system


def files(lake: Lake, as_json: AsJson = False) -> None:
    """List the archived files that were set aside because they cannot be read. Starts no Spark.

    Exit code 0 whether there are any or not, 2 on usage.
    """
    with usage():
        fs, root = file_system(lake)
        found = [(state.archive, file) for state in archives_in(fs, root) for file in state.set_aside()]
    if as_json:
        print_json({"files": [{"archive": archive, **file.to_json()} for archive, file in found]})
        return
    columns = ("archive", "file", "topic", "reason", "detail", "since")
    rows = [[archive, file.path, file.topic, file.reason, file.detail, file.since] for archive, file in found]
    stdout_console().print(table(f"Files set aside by lake {lake}", columns, rows))
