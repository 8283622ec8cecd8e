"""``airflow-cdc schema``: how the values of bare JSON are spelled, handed over once."""

from __future__ import annotations

from typing import Annotated

import typer

from airflow_cdc.cli_common import AsJson, DryRun, Flow, Lake, usage
from airflow_cdc.cli_schema_pull import schema_pull
from airflow_cdc.console import print_json
from airflow_cdc.print_schema import print_import, print_schema

schema = typer.Typer(help="Types of a source's columns, for archives without schemas.", no_args_is_help=True)
schema.command("pull")(schema_pull)


@schema.command("import")
def schema_import(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Files or URIs that hold schemas; - is stdin.")],
    lake: Lake,
    flow: Annotated[
        str | None, typer.Option(help="Topic, where the files name none or several.", show_default=False, metavar="TOPIC")
    ] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Keep in a lake the schemas that files hold: of Connect, of Avro, of JSON Schema, of a registry's export. Starts no Spark.

    Exit code 0 when at least one was kept, 2 on usage and when a file cannot be taken; nothing is kept then.
    """
    with usage():
        from airflow_cdc.pipeline.upkeep.import_schemas import import_schemas, read_inputs

        done = import_schemas(lake, read_inputs(files), flow, dry_run=dry_run)
    if as_json:
        aside = [vars(each) for each in done.aside]
        print_json({"lake": lake, "dry_run": dry_run, "schemas": [each.to_json() for each in done.schemas], "left_aside": aside})
        return
    print_import(done, lake, dry_run=dry_run)


@schema.command("show")
def schema_show(flow: Flow, lake: Lake, as_json: AsJson = False) -> None:
    """Show a flow's columns: type, spelling in bare JSON, and where the type comes from. Starts no Spark.

    Beside them the schema that was handed over. Exit code 0, 2 on usage and when nothing is known of the flow.
    """
    with usage():
        from airflow_cdc.pipeline.upkeep.show_schema import show_schema

        found = show_schema(lake, flow)
    if as_json:
        print_json(found.to_json())
        return
    print_schema(found)
