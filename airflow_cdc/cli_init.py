"""``airflow-cdc init``: the first flows file and Dag for an archive."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from airflow_cdc.cli_common import AsJson, usage
from airflow_cdc.cli_inspect import ArchiveArgument
from airflow_cdc.console import print_json, stdout_console
from airflow_cdc.model.archive.topics import printable
from airflow_cdc.model.errors import ConfigurationError


def init(
    archive: ArchiveArgument,
    out: Annotated[Path, typer.Option(help="Folder to write to, such as Airflow's Dags folder; made where it is missing.")] = Path(),
    lake: Annotated[str, typer.Option(help="Root URI of the lake, for the printed next steps.")] = "LAKE",
    as_json: AsJson = False,
) -> None:
    """Look at an archive, write a flows file and a Dag for it, and print what the archive does not show. Starts no Spark.

    Exit code 0 when the files are written, 2 on usage, for an archive that is not there, and where one of the files exists.
    """
    from airflow_cdc.flows_file import read_flows
    from airflow_cdc.pipeline.look.inspect_archive import inspect_archive
    from airflow_cdc.starter_files import FLOWS, starter_files, unknowns

    folder = out.absolute()
    with usage():
        _refuse_existing(folder)
        found = inspect_archive(archive)
        files = starter_files(found, folder)
        _write(folder, files)
        flows = list(read_flows(folder / FLOWS))
    lines, written = list(unknowns(found)), [str(path) for path in files]
    steps = [
        f"airflow connections add cdc_archive_default --conn-type cdc_archive --conn-host {quote(archive)}",
        f"airflow connections add cdc_lake_default --conn-type cdc_lake --conn-host {quote(lake)}",
        "airflow connections add spark_default --conn-type spark --conn-host 'local[2]'",
        f"airflow-cdc apply --archive {quote(archive)} --lake {quote(lake)} --flows {quote(str(folder / FLOWS))}",
    ]
    if as_json:
        print_json({"archive": archive, "written": written, "flows": flows, "unknown": lines, "next_steps": steps})
        return
    for title, items in (("wrote", written), ("not known", lines), ("next", steps)):
        for item in items:
            stdout_console().print(printable(f"{title}: {item}"), markup=False, highlight=False, soft_wrap=True)


def _refuse_existing(folder: Path) -> None:
    from airflow_cdc.starter_files import DAG, FLOWS, SETTINGS

    there = [str(folder / name) for name in (FLOWS, SETTINGS, DAG) if (folder / name).exists()]
    if there:
        raise ConfigurationError(
            f"{', '.join(there)} exists; nothing was written.", next_step="Choose another --out, or move the file away."
        )


def _write(folder: Path, files: dict[Path, str]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            # Another process may have made it since.
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be written: {error}.", next_step="Choose another --out.") from error
