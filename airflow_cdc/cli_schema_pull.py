"""``airflow-cdc schema pull``: what the columns of flows' tables are at their source."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from airflow_cdc.cli_common import EXIT_FAILED, AsJson, settings_of, usage
from airflow_cdc.console import error_text, print_json, stdout_console, table
from airflow_cdc.model.archive.topics import printable
from airflow_cdc.model.errors import ConfigurationError, SourceFailedError
from airflow_cdc.model.flow.source_schema import SourceSchema, to_document
from airflow_cdc.model.pull.settings import catalogues, checked_properties, values_of
from airflow_cdc.schema_file import COLUMNS, check_schema_file, column_rows, unknown_columns, write_schema_file


def _mode(name: str) -> object:
    return typer.Option(help=f"The connector's {name}: {', '.join(values_of(name))}; none: its default.", show_default=False)


def schema_pull(
    flows: Annotated[list[str], typer.Argument(metavar="FLOW...", help="Names of flows: the names of their topics.")],
    out: Annotated[Path, typer.Option(help="File to write: .yaml, .yml or .json.", show_default=False)],
    source_conn_id: Annotated[
        str | None,
        typer.Option(help="Airflow connection of the source database; none: the one that the archive's names.", show_default=False),
    ] = None,
    archive_conn_id: Annotated[
        str | None,
        typer.Option(help="Airflow connection of the archive; none: cdc_archive_default.", show_default=False),
    ] = None,
    tables: Annotated[
        list[str] | None,
        typer.Option("--table", help="Table [FLOW=]schema.table, where the topic is named otherwise; may be repeated.", show_default=False),
    ] = None,
    connector: Annotated[
        str | None, typer.Option(help=f"{', '.join(catalogues())}; none: by the connection's type or driver.", show_default=False)
    ] = None,
    decimal_handling_mode: Annotated[str | None, _mode("decimal.handling.mode")] = None,
    time_precision_mode: Annotated[str | None, _mode("time.precision.mode")] = None,
    binary_handling_mode: Annotated[str | None, _mode("binary.handling.mode")] = None,
    interval_handling_mode: Annotated[str | None, _mode("interval.handling.mode")] = None,
    hstore_handling_mode: Annotated[str | None, _mode("hstore.handling.mode")] = None,
    bigint_unsigned_handling_mode: Annotated[str | None, _mode("bigint.unsigned.handling.mode")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file where it is there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Ask the source database what its tables' columns are, and write what their events will hold into a file to review.

    Exit code 0 when it is written, 1 when the database does not answer or refuses, 2 on usage. It starts no Spark.
    """
    modes = {
        "decimal.handling.mode": decimal_handling_mode,
        "time.precision.mode": time_precision_mode,
        "binary.handling.mode": binary_handling_mode,
        "interval.handling.mode": interval_handling_mode,
        "hstore.handling.mode": hstore_handling_mode,
        "bigint.unsigned.handling.mode": bigint_unsigned_handling_mode,
    }
    with usage():
        properties = checked_properties({name: value for name, value in modes.items() if value is not None})
        check_schema_file(out, overwrite=overwrite)
        source = _Source(source_conn_id, archive_conn_id, connector)
        pulled = source.pull(flows, properties, _tables(flows, tables or []))
    write_schema_file(out, pulled)
    if as_json:
        print_json(to_document(pulled))
    else:
        _print(pulled, out)


@dataclass(frozen=True)
class _Source:
    conn_id: str | None
    archive_conn_id: str | None
    connector: str | None

    def pull(self, flows: Sequence[str], properties: Mapping[str, str], tables: Mapping[str, str]) -> tuple[SourceSchema, ...]:
        # Airflow writes its log to stdout, and looks for connections in its own database only in processes of its own.
        os.environ.setdefault("AIRFLOW__LOGGING__LOGGING_LEVEL", "ERROR")
        os.environ.setdefault("_AIRFLOW_PROCESS_CONTEXT", "server")
        try:
            with redirect_stdout(sys.stderr):
                from airflow_cdc.hooks.source_catalogue import pull_schemas, source_of

                conn_id = self.conn_id or source_of(self.archive_conn_id)
                return pull_schemas(conn_id, flows, properties, tables=tables, connector=self.connector)
        except SourceFailedError as error:
            Console(stderr=True).print(error_text(error))
            raise typer.Exit(EXIT_FAILED) from error


def _tables(flows: Sequence[str], given: Sequence[str]) -> dict[str, str]:
    """Return by flow the table that was given for it.

    :raises ConfigurationError: when a table is of none of the flows.
    """
    if len(flows) == len(given) == 1 and "=" not in given[0]:
        return {flows[0]: given[0]}
    found = settings_of(list(given), "--table")
    wrong = [flow for flow in found if flow not in flows]
    if wrong:
        raise ConfigurationError(
            f"--table names {', '.join(wrong)}, and the flows are {', '.join(flows)}.", next_step="Write --table FLOW=schema.table."
        )
    return found


def _print(pulled: Sequence[SourceSchema], out: Path) -> None:
    console = stdout_console()
    for each in pulled:
        rows = [[printable(cell) for cell in row] for row in column_rows(each)]
        key = f"key {', '.join(each.keys)}" if each.keys else "no primary key"
        console.print(table(f"{each.flow}: {printable(each.origin)}, {printable(key)}", COLUMNS, rows))
    unknown = [f"{each.flow}.{printable(name)}" for each in pulled for name in unknown_columns(each)]
    if unknown:
        _line(console, f"not known how the connector spells: {', '.join(unknown)}; declare them under columns in the flows file")
    _line(console, f"settings of the connector: {', '.join(f'{name}={value}' for name, value in pulled[0].settings.items())}")
    _line(console, f"wrote {out}; compare the settings with the connector's configuration, then: airflow-cdc schema import {out} --lake …")


def _line(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
