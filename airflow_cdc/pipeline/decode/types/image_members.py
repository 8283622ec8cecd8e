"""The members of row images, for what their values show of the columns' types."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyspark.sql import DataFrame

from airflow_cdc.pipeline.spark import sql


def image_members(images: DataFrame, columns: Collection[str], renames: Mapping[str, str] | None = None) -> DataFrame:
    """Return one row per value of the columns that is not null: ``name``, ``kind`` (of the VARIANT), ``value`` (VARIANT).

    :param images: one column ``image``: a row image, or a key, as VARIANT. A text would have lost digits.
    :param renames: current column names by older ones.
    """
    cases = "".join(f" WHEN {sql.text(old)} THEN {sql.text(new)}" for old, new in (renames or {}).items())
    name = f"CASE member.key{cases} ELSE member.key END" if cases else "member.key"
    members = images.sparkSession.sql(
        f"SELECT {name} AS name, schema_of_variant(member.value) AS kind, member.value AS value"
        " FROM {images} AS images, LATERAL variant_explode(images.image) AS member",
        images=images,
    )
    return members.filter(f"name IN ({', '.join(sql.text(each) for each in columns)}) AND kind <> 'VOID'")
