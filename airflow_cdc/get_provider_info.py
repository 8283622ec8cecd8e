"""Provider metadata, which Airflow discovers."""

from __future__ import annotations

from typing import Any

_NAME = "Change data capture"
_DOCS = "https://debezium.io/documentation/reference/"
_OPERATORS = ("groups", "health", "maintain", "merge", "rebuild", "replay", "report", "reprocess", "retype", "survey", "verify")
_GUIDES = (
    *(
        "first-table",
        "many-tables",
        "point-at-your-cluster",
        "run-on-your-spark-service",
        "object-stores",
        "watch-it",
        "verify-against-the-source",
        "backfill",
        "maintenance",
    ),
    *("replay-quarantine", "rebuild-and-reprocess", "when-something-is-red"),
)
_WAITED_FOR = ("archive", "lag", "snapshot", "transactions")
_SENSORS = (*_WAITED_FOR, "source")


def get_provider_info() -> dict[str, Any]:
    """Return the provider's metadata in the form of Airflow's ``provider_info.schema.json``."""
    return {
        "package-name": "airflow-cdc",
        "name": _NAME,
        "description": "Archived change events (Debezium) become exact Delta tables.",
        "integrations": [
            {
                "integration-name": _NAME,
                "external-doc-url": _DOCS,
                "logo": "/docs/integration-logos/airflow-cdc.svg",
                "how-to-guide": [f"/docs/how-to/{page}.md" for page in _GUIDES],
                "tags": ["kafka"],
            }
        ],
        "operators": [{"integration-name": _NAME, "python-modules": [f"airflow_cdc.operators.{name}" for name in _OPERATORS]}],
        "sensors": [{"integration-name": _NAME, "python-modules": [f"airflow_cdc.sensors.{name}" for name in _SENSORS]}],
        "hooks": [{"integration-name": _NAME, "python-modules": ["airflow_cdc.hooks.archive", "airflow_cdc.hooks.lake"]}],
        "triggers": [
            {
                "integration-name": _NAME,
                "python-modules": [f"airflow_cdc.triggers.{name}" for name in (*_WAITED_FOR, "archive_event", "report")],
            }
        ],
        "task-decorators": [{"name": "cdc_merge", "class-name": "airflow_cdc.decorators.merge.cdc_merge_task"}],
        "extra-links": [f"airflow_cdc.links.tasks.{name}" for name in ("FlowLink", "QuarantineLink", "SparkLink")],
        "notifications": ["airflow_cdc.notifications.flows.CdcNotifier"],
        "config": {"airflow_cdc": {"description": "Addresses of this installation.", "options": _OPTIONS}},
        "asset-uris": [
            {
                "schemes": ["x-cdc"],
                # Airflow leaves URIs that begin with x- as they are.
                "handler": None,
                "factory": "airflow_cdc.assets.table_asset",
                "to_openlineage_converter": "airflow_cdc.lineage.asset_dataset",
            }
        ],
        # Airflow reads it where providers are discovered eagerly; else the entry point `airflow.plugins` names the same class.
        "plugins": [{"name": "airflow_cdc", "plugin-class": "airflow_cdc.plugins.cdc_plugin.CdcPlugin"}],
        "connection-types": [
            _connection_type(
                "cdc_archive",
                "CDC archive",
                "airflow_cdc.hooks.archive.CdcArchiveHook",
                label="Archive root URL",
                placeholder="s3://bucket/topics",
                fields={"layout": _LAYOUT, "format": _FORMAT, "source_conn_id": _SOURCE},
            ),
            _connection_type(
                "cdc_lake",
                "CDC lake",
                "airflow_cdc.hooks.lake.CdcLakeHook",
                label="Lake root URL",
                placeholder="s3://bucket/lake",
                fields={"engine": _ENGINE, "page_reads": _PAGE_READS},
            ),
        ],
    }


def _connection_type(kind: str, name: str, hook: str, *, label: str, placeholder: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "connection-type": kind,
        "hook-class-name": hook,
        "hook-name": name,
        "ui-field-behaviour": {
            "hidden-fields": ["schema", "port", "login", "password"],
            "relabeling": {"host": label},
            "placeholders": {"host": placeholder},
        },
        "conn-fields": {"storage_conn_id": _STORAGE, **fields},
    }


def _option(description: str, example: str, default: str = "") -> dict[str, Any]:
    return {"description": description, "version_added": "0.1.0", "type": "string", "example": example, "default": default}


_OPTIONS = {
    "docs_url": _option(
        "Where the documentation is published. The texts of Dags link its pages; empty: they name them.", "https://docs.example.com/cdc"
    ),
    "show_values": _option(
        "Who sees, in the page, what records hold, beside how flows stand. all: who may see the page; admins: who may read the lake's"
        " connection; none: nobody.",
        "all",
        default="admins",
    ),
    "spark_history_url": _option("Address of Spark's history server, to which tasks link.", "https://spark-history.example.com"),
}
# A plain "string" would make a field required.
_STORAGE = {
    "label": "Storage connection id",
    "description": "Airflow connection that reaches the storage, such as aws_default. Empty: the machine's own credentials.",
    "schema": {"type": ["string", "null"]},
}
_LAYOUT = {
    "label": "Layout",
    "description": "What every data file must be named like; another one is an error. sink: topic+partition+offset, as Kafka Connect does.",
    "schema": {"type": ["string", "null"], "default": "auto", "enum": ["auto", "sink"]},
}
_FORMAT = {
    "label": "Format",
    "description": "What every data file must be; another one is an error. auto: each file by its name and first bytes.",
    "schema": {"type": ["string", "null"], "default": "auto", "enum": ["auto", "json", "avro", "parquet"]},
}
_ENGINE = {
    "label": "Engine",
    "description": "What merges into the lake where a task names no engine: auto, spark or native. Empty: each flow's setting.",
    "schema": {"type": ["string", "null"]},
}
_PAGE_READS = {
    "label": "The page reads",
    "description": "Folders outside of the lake that the page may read, separated by commas: of tables that are elsewhere, and of"
    " archives whose connection is in a secrets backend.",
    "schema": {"type": ["string", "null"]},
}
_SOURCE = {
    "label": "Source connection id",
    "description": "Airflow connection of the database that the events come from; airflow-cdc schema pull asks it for the columns' types.",
    "schema": {"type": ["string", "null"]},
}
