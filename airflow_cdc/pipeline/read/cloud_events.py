"""Output of Debezium's CloudEvents converter in structured mode: ``data`` holds the images, ``iodebezium…`` attributes the rest.

An attribute's name is that of a ``source`` field in lower case without underscores (``iodebeziumcommitlsn``), as CloudEvents requires.
``data`` may also hold a whole envelope, and be ``{schema, payload}``.
"""

from __future__ import annotations

from airflow_cdc.model.connectors.registry import flattened_fields
from airflow_cdc.pipeline.read.one_document import END, sealed
from airflow_cdc.pipeline.spark import sql

MARKS = ("specversion",)
"""Members that identify a CloudEvent."""

_MEMBERS = ("before", "after", "op")


def envelope(parts: str) -> str:
    """Return the SQL of a CloudEvent's data as an envelope, NULL if the record is no CloudEvent, or its data no change event.

    :param parts: as for :func:`airflow_cdc.pipeline.read.flattened.envelope`.
    """
    source_fields = ("connector", "ts_ms", "snapshot", *flattened_fields())
    attributes = {name: f"iodebezium{name.lower().replace('_', '')}" for name in (*source_fields, "op")}
    members = ", ".join(f"{name} STRING" for name in ("specversion", "data", *attributes.values()))
    source = sql.struct({name: f"event.{attributes[name]}" for name in source_fields})
    images = "".join(f",\"{name}\":', coalesce(data.{name}, 'null'), '" for name in ("before", "after"))
    built = f"concat('{{\"op\":\"', event.iodebeziumop, '\"{images},\"source\":', to_json({source}), '}}')"
    # Where another document follows in it, the data is a text: left as it is, the event is broken.
    is_whole = f"coalesce(data.{END}, wrapped.payload) IS NOT NULL"
    payload = f"""CASE WHEN NOT ({is_whole}) THEN NULL WHEN data.op IS NOT NULL THEN coalesce(wrapped.payload, event.data)
        WHEN event.iodebeziumop IS NOT NULL AND (data.before IS NOT NULL OR data.after IS NOT NULL OR event.iodebeziumop = 't')
        THEN {built} END"""
    whole = f"if(wrapped.schema IS NULL, {payload}, concat('{{\"schema\":', wrapped.schema, ',\"payload\":', {payload}, '}}'))"
    ddl = sql.text(", ".join(f"{name} STRING" for name in (*_MEMBERS, END)))
    with_data = sql.let("data", f"from_json({sealed('coalesce(wrapped.payload, event.data)')}, {ddl})", whole)
    with_parts = sql.let("wrapped", "from_json(event.data, 'schema STRING, payload STRING')", with_data)
    found = sql.let("event", f"from_json({parts}.payload, {sql.text(members)})", f"if(event.specversion IS NULL, NULL, {with_parts})")
    return f"if({sql.mentions(f'{parts}.payload', MARKS)}, {found}, NULL)"
