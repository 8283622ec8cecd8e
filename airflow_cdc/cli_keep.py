"""``airflow-cdc maintain`` and ``airflow-cdc verify``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from airflow_cdc.cli_common import (
    EXIT_FAILED,
    AsJson,
    Connect,
    DryRun,
    FlowsFile,
    Globs,
    Lake,
    Master,
    SparkConf,
    SparkOptions,
    answer,
    progress_on,
    settings_of,
    spark_command,
    usage,
)
from airflow_cdc.console import print_causes, print_json, stdout_console
from airflow_cdc.flows_file import read_flows
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.files import absolute_uri
from airflow_cdc.model.report.maintenance import MaintenanceSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_cdc.model.report.verification import VerifyReport


def maintain(
    lake: Lake,
    tables: Globs = None,
    dry_run: DryRun = False,
    vacuum_after_days: Annotated[float, typer.Option(help="Days that files stay which no table needs any more.")] = 7,
    expire_after_days: Annotated[float, typer.Option(help="Days that delete markers stay: how late an event may come.")] = 30,
    purge_from: Annotated[float, typer.Option(help="Share of a table's rows that deletion vectors may hide.")] = 0.1,
    allow_short_retention: Annotated[
        bool, typer.Option("--allow-short-retention", help="Take less than 7 days for --vacuum-after-days.")
    ] = False,
    flows: FlowsFile = None,
    as_json: AsJson = False,
    master: Master = "local[*]",
    connect: Connect = None,
    conf: SparkConf = None,
) -> None:
    """Compact, cluster, purge and vacuum the tables of a lake; remove what is expired and what crashes left behind.

    Exit code 0 when all flows were done, 1 when any failed (the others are done all the same), 2 on usage.
    """
    with usage():
        clustering = read_flows(flows)
        settings = MaintenanceSettings.from_json(
            {
                "vacuum_after_days": vacuum_after_days,
                "expire_after_days": expire_after_days,
                "purge_from": purge_from,
                "allow_short_retention": allow_short_retention,
                "dry_run": dry_run,
            }
        )
    with spark_command("maintain", master, conf, connect) as (spark, console):
        from airflow_cdc.pipeline.upkeep.maintain import MaintenanceRun
        from airflow_cdc.pipeline.upkeep.maintain import maintain as maintain_lake

        report = maintain_lake(MaintenanceRun(spark, lake, clustering, tuple(tables or ()), settings, progress_on(console)))
        if as_json:
            print_json(report.to_json())
        else:
            for line in report.lines():
                stdout_console().print(line, markup=False, highlight=False)
        print_causes(console, report.causes())
        if not report.ok:
            raise typer.Exit(EXIT_FAILED)


def verify(
    lake: Annotated[str, typer.Argument(metavar="LAKE", callback=absolute_uri)],
    other: Annotated[str | None, typer.Argument(metavar="[OTHER]", help="Root URI of another lake.", show_default=False)] = None,
    tables: Globs = None,
    jdbc_url: Annotated[str | None, typer.Option(help="JDBC URL of the source.", show_default=False)] = None,
    query: Annotated[str | None, typer.Option(help="Query that gives the source's rows.", show_default=False)] = None,
    jdbc_user: Annotated[str | None, typer.Option(help="User of the source.", show_default=False)] = None,
    jdbc_password_env: Annotated[
        str | None, typer.Option(help="Name of the environment variable that holds the password.", show_default=False)
    ] = None,
    jdbc_option: Annotated[
        list[str] | None, typer.Option(help="Option key=value of Spark's JDBC reader; may be repeated.", show_default=False)
    ] = None,
    history: Annotated[bool, typer.Option("--history", help="Check that no versions of a row overlap.")] = False,
    as_json: AsJson = False,
    master: Master = "local[*]",
    connect: Connect = None,
    conf: SparkConf = None,
) -> None:
    """Check that no key of a table has several rows. Or compare tables with those of another lake by count and checksum, or one table with
    a query of its source by its rows; or check that tables which keep every version hold none that overlap.

    Exit code 0 only when there is something to verify, all of it is equal, and no key has several rows.
    """
    with usage():
        options = _jdbc_options(jdbc_url, query, jdbc_user, jdbc_password_env, jdbc_option)
        if sum(map(bool, (options, other, history))) > 1 or (options and len(tables or ()) != 1):
            raise ConfigurationError(
                "Tables are compared with at most one other side: another lake, a query on their source, or their own history.",
                next_step="Give another lake; or --jdbc-url, --query and --table with the name of one flow; or --history; or nothing more.",
            )

    def natively() -> VerifyReport:
        from airflow_cdc.pipeline.look.doubled_keys import verify_keys_natively

        return verify_keys_natively(lake, tables or ())

    def in_spark(spark: SparkSession) -> VerifyReport:
        from airflow_cdc.pipeline.upkeep.verify import verify_history, verify_keys, verify_lakes, verify_source

        if history:
            return verify_history(spark, lake, tables or ())
        if other:
            return verify_lakes(spark, lake, absolute_uri(other), tables or ())
        return verify_source(spark, lake, (tables or [""])[0], options) if options else verify_keys(spark, lake, tables or ())

    if options or other or history:
        with spark_command("verify", master, conf, connect) as (spark, _):
            report = in_spark(spark)
    else:
        report = answer("verify", natively, in_spark, SparkOptions(master, conf, connect))
    if as_json:
        print_json(report.to_json())
    else:
        for line in report.lines():
            stdout_console().print(line, markup=False, highlight=False, soft_wrap=True)
    if not report.equal:
        raise typer.Exit(EXIT_FAILED)


def _jdbc_options(url: str | None, query: str | None, user: str | None, variable: str | None, others: list[str] | None) -> dict[str, str]:
    """Return the options of Spark's JDBC reader.

    :raises ConfigurationError: when the variable that shall hold the password does not exist.
    """
    options = settings_of(others, "--jdbc-option")
    if "password" in {name.lower() for name in options}:
        raise ConfigurationError(
            "A password on the command line can be read by every user of the machine.",
            next_step="Put it into an environment variable, and give that variable's name: --jdbc-password-env NAME.",
        )
    given = {"url": url, "query": query, "user": user}
    if variable is not None:
        if variable not in os.environ:
            raise ConfigurationError(f"There is no environment variable {variable}.", next_step="Put the source's password into it.")
        given["password"] = os.environ[variable]
    return {**options, **{name: value for name, value in given.items() if value is not None}}
