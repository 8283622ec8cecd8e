"""What Debezium's CloudEvents converter writes in structured mode: ``data`` holds the images, ``iodebezium…`` attributes all the rest.

An attribute's name is that of a field of ``source`` in lower case without underscores (``iodebeziumcommitlsn``), because CloudEvents allows
no others. ``data`` may hold a whole envelope too, and be ``{schema, payload}``.
"""

from __future__ import annotations

from airflow_cdc.model.connectors.registry import flattened_fields
from airflow_cdc.pipeline.spark import sql

MARKS = ("specversion",)
"""Members that a CloudEvent has."""

_MEMBERS = ("before", "after", "op")


def envelope(parts: str) -> str:
    """Return the SQL of a CloudEvent's data as an envelope, NULL where a record is none, or its data no change event.

    :param parts: as :func:`airflow_cdc.pipeline.read.flattened.envelope` takes it.
    """
    source_fields = ("connector", "ts_ms", "snapshot", *flattened_fields())
    attributes = {name: f"iodebezium{name.lower().replace('_', '')}" for name in (*source_fields, "op")}
    members = ", ".join(f"{name} STRING" for name in ("specversion", "data", *attributes.values()))
    source = sql.struct({name: f"event.{attributes[name]}" for name in source_fields})
    images = "".join(f",\"{name}\":', coalesce(data.{name}, 'null'), '" for name in ("before", "after"))
    built = f"concat('{{\"op\":\"', event.iodebeziumop, '\"{images},\"source\":', to_json({source}), '}}')"
    payload = f"""CASE WHEN data.op IS NOT NULL THEN coalesce(wrapped.payload, event.data)
        WHEN event.iodebeziumop IS NOT NULL AND (data.before IS NOT NULL OR data.after IS NOT NULL OR event.iodebeziumop = 't')
        THEN {built} END"""
    whole = f"if(wrapped.schema IS NULL, {payload}, concat('{{\"schema\":', wrapped.schema, ',\"payload\":', {payload}, '}}'))"
    ddl = sql.text(", ".join(f"{name} STRING" for name in _MEMBERS))
    with_data = sql.let("data", f"from_json(coalesce(wrapped.payload, event.data), {ddl})", whole)
    with_parts = sql.let("wrapped", "from_json(event.data, 'schema STRING, payload STRING')", with_data)
    found = sql.let("event", f"from_json({parts}.payload, {sql.text(members)})", f"if(event.specversion IS NULL, NULL, {with_parts})")
    return f"if({sql.mentions(f'{parts}.payload', MARKS)}, {found}, NULL)"
