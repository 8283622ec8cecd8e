"""Decode archived lines of one topic into change events of one shape, or rejects with a reason.

Nothing is dropped: every line of the topic gets a kind, and one that cannot be merged a reject reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_cdc.model.archive.survey import RecordLayout
from airflow_cdc.model.columns import (
    ABSENT,
    COMMITTED_AT,
    FILE,
    KIND,
    LINE,
    OFFSET,
    OLD_KEY,
    OP,
    ORDINAL,
    PARTITION,
    POSITION,
    RAW,
    RAW_KEY,
    REJECT,
    SNAPSHOT,
    TRANSACTION,
    UNAVAILABLE,
)
from airflow_cdc.pipeline.decode.absent_columns import hashes_of_null, names_of_absent, sometimes_absent
from airflow_cdc.pipeline.decode.envelope import (
    KIND_MEMBERS,
    LINE_STRUCT,
    SCHEMA,
    is_corrupt,
    kind_of,
    lacks_value,
    parse_line,
    whole_record,
)
from airflow_cdc.pipeline.decode.event_place import POSITION_TYPE, position_of_event, snapshot_marker
from airflow_cdc.pipeline.decode.key_changes import split_key_changes
from airflow_cdc.pipeline.decode.key_guard import Updates, updates_in_spark
from airflow_cdc.pipeline.decode.lanes import lane
from airflow_cdc.pipeline.decode.microbatch_shape import MicrobatchShape
from airflow_cdc.pipeline.decode.record_key import key_text, parse_key
from airflow_cdc.pipeline.decode.rejects import HAS_IMAGE, IS_OURS, UNPROVEN_KEY, reject_of
from airflow_cdc.pipeline.decode.renamed_columns import rename_members, with_old_names
from airflow_cdc.pipeline.decode.source_columns import is_schema, is_single
from airflow_cdc.pipeline.decode.topic_records import of_topic
from airflow_cdc.pipeline.decode.types.connect_types import instant
from airflow_cdc.pipeline.decode.types.long_fractions import fractions_of, members_of, texts_of
from airflow_cdc.pipeline.decode.unavailable_values import (
    fill_from_before,
    hashes_of,
    names_of_unavailable,
    shows_row,
    unless_unavailable,
)
from airflow_cdc.pipeline.decode.whole_rows import BEFORE_ROW, HAS_BEFORE, LACKING, before_name, lacking
from airflow_cdc.pipeline.read.read_lines import file_literal
from airflow_cdc.pipeline.spark import sql

ORDINAL_TYPE = "STRUCT<offset: BIGINT, run: STRING, file: STRING, block: BIGINT, row: BIGINT>"
"""Place of an event in the archive: Kafka offset, or of values the first offset of their file; then the place in the file. Without an
offset ``file`` is the path, and NULL with one. Of two such events the members give the order only if they share ``run``: the path too,
or NULL if the names of the files are declared to be in order."""

VALUE_POSITIONS_TYPE = f"ARRAY<STRUCT<column: STRING, position: {POSITION_TYPE}, known: BOOLEAN>>"
"""Type of :data:`~airflow_cdc.model.columns.VALUE_POSITIONS`."""
MOVED_TYPE = f"STRUCT<position: {POSITION_TYPE}, old_key: STRING>"
"""For a row that came from another key: the position, and the old key as JSON where a header carries it."""

IS_ROW_EVENT = f"{REJECT} IS NULL AND {OP} IS NOT NULL"
"""SQL over :meth:`Decoder.events`: true for a row event that is not rejected."""

BEFORE = "__cdc_before"
"""array<bigint>: hashes of the before image, one per column without the keys, NULL where the image does not carry the column. NULL as a
whole where the event has no before image, or one that may be fillers beside the key (:mod:`airflow_cdc.pipeline.decode.fillers`)."""
AFTER = "__cdc_after"
"""As above, for the after image."""
LINE_HASH = "__cdc_line_hash"
"""Hash of a line's text. Computed where the line is read, so that later stages need not carry the text."""


@dataclass(frozen=True)
class Decoder(MicrobatchShape):
    """Decodes the lines of one microbatch."""

    @cached_property
    def _layouts(self) -> set[RecordLayout]:
        return {shape.layout for shape in self.shapes}

    @cached_property
    def _wrapped(self) -> set[bool]:
        # Control events have no shape: expect both forms.
        return {is_schema(shape.value_shape) for shape in self.shapes if shape.value_shape} or {True, False}

    @cached_property
    def _has_keys(self) -> bool:
        return any(shape.key_shape and not is_single(shape.key_shape) for shape in self.shapes)

    def events(self, lines: DataFrame, *, with_images: bool = False) -> DataFrame:
        """Return one row per record of the topic: the source's columns, then our own.

        Source columns hold the after image; for a delete only the key. Then follow, under the names of :mod:`airflow_cdc.model.columns`:

        - :data:`BEFORE_ROW`, struct of the whole before image, only without a key;
        - kind, operation, position (:data:`POSITION_TYPE`), transaction, the snapshot's marker;
        - ``ABSENT``: the names of the columns that the event's schema does not have;
        - commit time, partition, offset, ordinal (:data:`ORDINAL_TYPE`);
        - file, line, raw text, its hash (:data:`LINE_HASH`) and the raw key; or, ``with_images``, :data:`BEFORE`, :data:`AFTER` and the old
          key from a header (JSON);
        - the value shape's own columns (:attr:`~airflow_cdc.pipeline.decode.value_shape.ValueShape.added_names`);
        - ``UNAVAILABLE``: the names of all columns whose value the event does not carry, absent ones among them; NULL for none;
        - reject (:data:`~airflow_cdc.pipeline.decode.rejects.REJECT_TYPE`), NULL for a good record.

        :param lines: from :func:`airflow_cdc.pipeline.read.read_lines.read_lines`.
        :param with_images: whether to return the images' hashes in place of file, line, raw text, hash and raw key. The before image is
            then parsed too.
        """
        records = self._read(lines, with_images=with_images)
        if self.splits_key_changes:
            records = split_key_changes(records, self.columns.keys, keeps_key=self.value_shape.splits_key_changes)
        return self._typed(records, with_images=with_images)

    def _line_members(self, *, with_images: bool) -> str:
        value = self._value_members(self._payload_members(with_images=with_images))
        members = []
        if RecordLayout.RECORD in self._layouts:
            key = members_of(["key"], {"key"} if self._has_fractions_in_key else ())
            members += ["topic STRING", "partition STRING", "`offset` STRING", key, f"value STRUCT<{value}>"]
        if RecordLayout.VALUE in self._layouts:
            members.append(value)
        return ", ".join(members)

    def _value_members(self, payload: str) -> str:
        forms = []
        if True in self._wrapped:
            forms.append(f"payload STRUCT<{payload}>")
        if False in self._wrapped:
            forms.append(payload)
        return ", ".join(forms)

    def look_at_updates(self, lines: DataFrame) -> Updates:
        """Return what a microbatch's updates and deletes show of its before images. Runs a job."""
        return updates_in_spark(self._read(lines, with_images=False), self.guard)

    def _read(self, lines: DataFrame, *, with_images: bool) -> DataFrame:
        parsed = of_topic(self._parsed(lines, with_images=with_images), self.topic, self.shapes)
        return self._located(self._unwrapped(parsed, with_images=with_images))

    def _parsed(self, lines: DataFrame, *, with_images: bool) -> DataFrame:
        parsed = parse_line(self._line_members(with_images=with_images))
        return lines.selectExpr(FILE, LINE, ORDINAL, RAW, f"xxhash64({RAW}) AS {LINE_HASH}", RAW_KEY, f"{parsed} AS {LINE_STRUCT}")

    def _payload_members(self, *, with_images: bool) -> str:
        # A batch without row events has no columns, yet a struct needs a member.
        image = members_of(self._parsed_columns or [KIND], self._fractions)
        source = ", ".join(f"{name} STRING" for name in ("connector", "ts_ms", "snapshot", *self.dialect.position.fields))
        before = image if self._has_before(with_images=with_images) else self._key_struct
        members = {**KIND_MEMBERS, **self.value_shape.members(before=before, after=image, source=source)}
        return ", ".join(f"{name} {kind}" for name, kind in members.items())

    @cached_property
    def _payload_fields(self) -> list[str]:
        return [*KIND_MEMBERS, *self.value_shape.members(before="", after="", source="")]

    @cached_property
    def _parsed_columns(self) -> list[str]:
        return with_old_names(self.image_columns, self.columns.formerly)

    @cached_property
    def _key_struct(self) -> str:
        return members_of(self.columns.keys or [KIND], self._fractions)

    def _unwrapped(self, records: DataFrame, *, with_images: bool) -> DataFrame:
        """Return file, line, ordinal, raw text, its hash, raw key (text), partition, offset, and the envelope as ``payload``."""
        line = LINE_STRUCT
        as_record = f"{line}.value"
        is_record = whole_record(f"{line}.topic", as_record)
        forms = {RecordLayout.RECORD: as_record, RecordLayout.VALUE: line}
        if self._layouts == {RecordLayout.RECORD, RecordLayout.VALUE}:
            value_only = self._struct_of(line, self._value_fields())
            value = f"if({is_record}, {self._struct_of(as_record, self._value_fields())}, {value_only})"
        else:
            value = forms[next(iter(self._layouts))]
        recorded = RecordLayout.RECORD in self._layouts
        key = f"coalesce(CAST({line}.key AS STRING), {RAW_KEY})" if recorded else RAW_KEY
        # What has no value is a tombstone only as a whole record that says so.
        lacks = lacks_value(as_record)
        strays = f"{is_record} AND {lacks}" if RecordLayout.VALUE in self._layouts else f"NOT {is_record} OR {lacks}"
        is_stray = f"{line} IS NOT NULL AND ({strays})" if recorded else "false"
        parsed = records.selectExpr(
            FILE,
            LINE,
            ORDINAL,
            RAW,
            LINE_HASH,
            f"{key} AS {RAW_KEY}",
            f"{is_corrupt(line, key)} AS corrupt",
            f"{f'try_cast({line}.partition AS INT)' if recorded else 'CAST(NULL AS INT)'} AS {PARTITION}",
            f"{f'try_cast({line}.`offset` AS BIGINT)' if recorded else 'CAST(NULL AS BIGINT)'} AS {OFFSET}",
            f"{value} AS value",
            f"{is_stray} AS is_stray",
        )
        # From here on, only the presence of the value matters.
        unwrapped = parsed.withColumns(
            {"payload": F.expr(self._payload()), "value": F.expr("if(value IS NULL AND NOT is_stray, NULL, true)")}
        )
        unwrapped = self.value_shape.respelled(unwrapped, KIND_MEMBERS, has_keys=self._has_keys)
        has_before = self._has_before(with_images=with_images)
        if self._fractions:
            before = (self._parsed_columns if has_before else self.columns.keys) or [KIND]
            after = texts_of("payload.after", self._parsed_columns, self._fractions, lines=self._texts)
            earlier = texts_of("payload.before", before, self._fractions, lines=self._texts)
            payload = F.col("payload").withField("after", F.expr(after)).withField("before", F.expr(earlier))
            unwrapped = unwrapped.withColumn("payload", payload)
        return rename_members(unwrapped, self.columns.formerly, ("after", "before") if has_before else ("after",))

    def _has_before(self, *, with_images: bool) -> bool:
        return with_images or self.without_key

    @cached_property
    def _fractions(self) -> frozenset[str]:
        return fractions_of(self.columns)

    @property
    def _texts(self) -> str:
        # The key of a whole record was spelled anew when the line was parsed.
        return f"concat_ws(' ', {RAW}, {RAW_KEY})" if any(file.keys_path for file in self.files) else RAW

    @property
    def _has_fractions_in_key(self) -> bool:
        return not self._fractions.isdisjoint(self.columns.keys)

    def _value_fields(self) -> list[str]:
        bare = self._payload_fields if False in self._wrapped else []
        return (["payload"] if True in self._wrapped else []) + bare

    def _struct_of(self, parent: str, fields: Sequence[str]) -> str:
        return sql.struct_unless_null(parent, {field: f"{parent}.{field}" for field in fields})

    def _payload(self) -> str:
        if self._wrapped == {True}:
            return "value.payload"
        if True not in self._wrapped:
            return "value"
        bare = self._struct_of("value", self._payload_fields)
        return f"if(value.payload IS NOT NULL, value.payload, {bare})"

    def _located(self, records: DataFrame) -> DataFrame:
        """Add kind, partition, ordinal and the parsed key."""
        by_name = file_literal(self.files, "partition", "INT")
        kind = kind_of(corrupt="corrupt", value="value", payload="payload", key=RAW_KEY)
        located = records.selectExpr(
            FILE,
            LINE,
            RAW,
            LINE_HASH,
            RAW_KEY,
            "payload",
            f"{lane(f'coalesce({PARTITION}, {by_name})', self.lives)} AS {PARTITION}",
            OFFSET,
            f"{self._ordinal()} AS {ORDINAL}",
            f"{kind} AS {KIND}",
            f"{self._parsed_key()} AS key",
        )
        if self._has_keys and self._has_fractions_in_key:
            return located.withColumn("key", F.expr(texts_of("key", self.columns.keys, self._fractions, lines=self._texts)))
        return located

    def _ordinal(self) -> str:
        offset = f"coalesce({OFFSET}, {file_literal(self.files, 'start_offset', 'BIGINT')})"
        is_placed = all(file.start_offset is not None for file in self.files)
        file = "CAST(NULL AS STRING)" if is_placed else f"if({offset} IS NULL, {FILE}, NULL)"
        run = "CAST(NULL AS STRING)" if self.files_are_in_order else file
        # With an offset, the place in the file only breaks ties; in value-only files it orders records behind the first offset.
        members = f"'offset', {offset}, 'run', {run}, 'file', {file}, 'block', {ORDINAL}.block, 'row', {ORDINAL}.row"
        return f"named_struct({members})"

    def _parsed_key(self) -> str:
        if not self._has_keys or not self.columns.keys:
            return "CAST(NULL AS STRING)"
        wrapped = any(is_schema(shape.key_shape) for shape in self.shapes if shape.key_shape)
        bare = any(not is_schema(shape.key_shape) for shape in self.shapes if shape.key_shape)
        if self.has_own_keys:
            return parse_key(self._key_struct, wrapped=wrapped, bare=bare)
        return self.value_shape.parsed_key(self._key_struct, self.columns.keys, wrapped=wrapped, bare=bare)

    def _typed(self, records: DataFrame, *, with_images: bool) -> DataFrame:
        """Cast the texts to values, and add the reject of each record that cannot be merged."""
        if self.dialect.images.before_has_omitted or self.without_key:
            left_out = [name for name in self.large_columns if name not in self.columns.keys]
            records = fill_from_before(records, left_out, self.value_shape, formerly=self.columns.formerly)
        texts = {name: self._text_of(name) for name in self.image_columns}
        position = position_of_event(self.dialect, self.epochs, are_split=self.splits_key_changes)
        staged = records.selectExpr(
            *[f"{unless_unavailable(text, in_whole=self.in_whole)} AS {sql.name(name)}" for name, text in texts.items()],
            f"{self._unavailable(texts, in_whole=self.in_whole)} AS {UNAVAILABLE}",
            f"{names_of_absent(self._sometimes_absent(), self.columns.formerly)} AS {ABSENT}",
            f"{self.dialect.transactions.identity.replace('source.', 'payload.source.')} AS {TRANSACTION}",
            *(self._images() if with_images else []),
            f"{position} AS {POSITION}",
            f"CASE WHEN {KIND} IN ('r', 'c', 'u', 'd') THEN {KIND} END AS {OP}",
            f"{instant('payload.source.ts_ms', 1_000)} AS {COMMITTED_AT}",
            f"{snapshot_marker(self.dialect)} AS {SNAPSHOT}",
            f"{self.value_shape.has_image} AS {HAS_IMAGE}",
            f"{self._is_ours()} AS {IS_OURS}",
            f"{self._unproven_key()} AS {UNPROVEN_KEY}",
            *self.value_shape.added,
            *(self._before() if self.without_key else []),
            KIND,
            PARTITION,
            OFFSET,
            ORDINAL,
            FILE,
            LINE,
            RAW,
            LINE_HASH,
            RAW_KEY,
        )
        values = [f"{rule.read(sql.name(name))} AS {sql.name(name)}" for name, rule in self.columns.types.items()]
        ours = (KIND, OP, POSITION, TRANSACTION, SNAPSHOT, ABSENT, COMMITTED_AT, PARTITION, OFFSET, ORDINAL)
        more = [*((BEFORE, AFTER, OLD_KEY) if with_images else (FILE, LINE, RAW, LINE_HASH, RAW_KEY)), *self.value_shape.added_names]
        if self.without_key:
            # A struct needs a member even if all columns of a row are NULL.
            row = {HAS_BEFORE: "true"} | {name: rule.read(sql.name(before_name(name))) for name, rule in self.columns.types.items()}
            values.append(f"{sql.struct_unless_null(HAS_BEFORE, row)} AS {BEFORE_ROW}")
        not_carried = f"nullif(array_union(coalesce({UNAVAILABLE}, array()), coalesce({ABSENT}, array())), array())"
        not_carried = self.value_shape.unknown_columns(not_carried)
        if self.keeps_deleted:
            others = sql.texts(name for name in self.columns.types if name not in self.columns.keys)
            not_carried = f"if({OP} = 'd', nullif({others}, array()), {not_carried})"
        reject = reject_of(self.columns, without_key=self.without_key, foreign=self.foreign.condition())
        return staged.selectExpr(
            *values,
            *ours,
            *more,
            f"{not_carried} AS {UNAVAILABLE}",
            f"{sql.once(reject, beside=values)} AS {REJECT}",
        )

    def _is_ours(self) -> str:
        if self.dialect.values.recognised:
            # Here, source.connector names the connector through which the values came, if any.
            return "true"
        known = ", ".join(map(sql.text, self.dialect.names))
        return f"coalesce(payload.source.connector IN ({known}), true)"

    def _unproven_key(self) -> str:
        texts = {key: self._text_of(key) for key in self.columns.keys}
        return self.guard.unproven_in_spark(texts, self.updates, has_keys=self._has_keys)

    def _images(self) -> list[str]:
        headers = f"from_json(get_json_object({RAW}, '$.headers'), 'ARRAY<STRUCT<key: STRING, value: STRING>>')"
        header_value = f"try_element_at(filter({headers}, header -> header.key = '__debezium.oldkey'), 1).value"
        old_key = f"coalesce(get_json_object({header_value}, '$.payload'), {header_value})"
        if not set(self.columns.keys).isdisjoint(self.columns.by_schema):
            # Who reads this text as a record finds the schema of the key's columns where a record has it.
            old_key = f"concat('{{\"value\":{{\"schema\":', coalesce({SCHEMA}, 'null'), '}},', substr({old_key}, 2))"
        absent, formerly = self._sometimes_absent(), self.columns.formerly
        nulls = {**hashes_of_null(absent, "before", formerly), **dict.fromkeys(self.omitted_before, "NULL")}
        before = hashes_of("payload.before", self.hashed_columns, nulls=nulls)
        if self.dialect.images.before_has_fillers:
            before = f"if({shows_row('payload.before', self.hashed_columns)}, {before}, NULL)"
        return [
            f"{before} AS {BEFORE}",
            f"{hashes_of('payload.after', self.hashed_columns, nulls=hashes_of_null(absent, 'after', formerly))} AS {AFTER}",
            f"{old_key} AS {OLD_KEY}",
        ]

    def _before(self) -> list[str]:
        texts = {name: f"payload.before.{sql.name(name)}" for name in self.image_columns}
        return [
            *[f"{unless_unavailable(text)} AS {sql.name(before_name(name))}" for name, text in texts.items()],
            f"if(payload.before IS NOT NULL, true, NULL) AS {HAS_BEFORE}",
            f"{lacking(self._unavailable(texts))} AS {LACKING}",
        ]

    def _sometimes_absent(self) -> list[str]:
        ours = [shape for shape in self.shapes if not self.foreign.holds(shape)] if self.value_shape.has_own_columns else []
        return sometimes_absent(self.columns, ours)

    def _unavailable(self, texts: Mapping[str, str], *, in_whole: str = "false") -> str:
        """Return the SQL of the names of columns with an unavailable value. Only large types can have one."""
        return names_of_unavailable({name: texts[name] for name in self.large_columns}, self.value_shape, in_whole=in_whole)

    def _text_of(self, name: str) -> str:
        quoted = sql.name(name)
        if name not in self.columns.keys:
            # In a delete's before image only the key is real: other columns may hold fillers (docs/sources/postgresql.md#images-before).
            return f"if({KIND} = 'd', NULL, payload.after.{quoted})"
        return key_text(quoted, in_key=self._has_keys, is_single=self.columns.key_is_single)
