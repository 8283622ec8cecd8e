"""Value shape: how the decoder reads a connector's values. The base class reads Debezium's envelope of a row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame

from airflow_cdc.pipeline.decode.record_key import parse_key, unless_in_image


class ValueShape:
    """How to convert values to envelopes of a row, and which columns their images do not carry."""

    images: tuple[str, ...] = ("after",)
    """Members of a value that hold the after image."""
    has_own_columns = True
    """Whether each table has columns of its own, which distinguish its events from another table's."""
    splits_key_changes = True
    """Whether the connector splits a change of the record's key into two events."""
    has_image = "payload.after IS NOT NULL"
    """SQL that is true for an event whose after image is known or can be derived."""
    added: Sequence[str] = ()
    """SQL of the columns that only this shape's events have."""
    added_names: Sequence[str] = ()
    """The names of these columns."""

    def members(self, *, before: str, after: str, source: str) -> dict[str, str]:
        """Return the DDL of a value's members, without those that show its kind.

        :param before: DDL of the before image's members that are read.
        :param after: of the after image.
        :param source: of the source block.
        """
        return {"before": f"STRUCT<{before}>", "after": f"STRUCT<{after}>", "source": f"STRUCT<{source}>"}

    def respelled(self, records: DataFrame, kinds: Iterable[str], *, has_keys: bool) -> DataFrame:
        """Return records with ``payload`` as an envelope of a row, and with the record's key.

        :param records: with ``payload``, a struct of ``kinds`` and :meth:`members`.
        :param kinds: the members that show a value's kind; they are kept.
        :param has_keys: whether some records have keys.
        """
        return records

    def parsed_key(self, members: str, keys: Sequence[str], *, wrapped: bool, bare: bool) -> str:
        """Return the SQL of a record's key as a struct of texts; NULL where the after image has them.

        :param members: DDL of the key's members.
        :param keys: their names.
        :param wrapped: whether some keys are ``{schema, payload}``.
        :param bare: whether some are not.
        """
        return unless_in_image(keys, parse_key(members, wrapped=wrapped, bare=bare))

    def leaves_out(self, name: str, text: str) -> str:
        """Return the SQL that is true for a column whose value is omitted without a placeholder.

        :param text: SQL of the column's text.
        """
        return "false"

    def unknown_columns(self, found: str) -> str:
        """Return the SQL of the names of the columns that an event does not carry.

        :param found: SQL of those found in its image.
        """
        return found
