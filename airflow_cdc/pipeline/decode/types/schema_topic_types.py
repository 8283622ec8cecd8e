"""Types from a schema-change topic for events without a schema, where the values prove the connector's modes.

The meaning of an epoch count, or of text that may be base64, depends on the connector's modes, and no archive carries them. So a column
gets its type from the topic only if its values rule out every other mode
(docs/adr/0015-types-from-the-schema-change-topic.md).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from airflow_cdc.model.catalogue.fields import DATE, DECIMAL, ZONED
from airflow_cdc.pipeline.decode.types.column_types import holds, reads_alike
from airflow_cdc.pipeline.decode.types.connect_types import LAST_DAY, ColumnType, column_type
from airflow_cdc.pipeline.decode.types.native_types import NativeType
from airflow_cdc.pipeline.decode.types.seen_values import SeenValues

_MILLIS, _MICROS, _NANOS = 1_000, 1_000_000, 1_000_000_000
_UNITS_BY_MODE: Mapping[str, Callable[[NativeType, int], int]] = {
    "adaptive": lambda native, units: units,
    "adaptive_time_microseconds": lambda native, units: _MICROS if native.is_time_of_day else units,
    "connect": lambda native, units: _MILLIS,
    "microseconds": lambda native, units: _MICROS,
    "nanoseconds": lambda native, units: _NANOS,
}
"""By ``time.precision.mode``: units per second of a time that is a number."""
_GREATEST_INTEGER = {"int16": 2**15 - 1, "int32": 2**31 - 1, "int64": 2**63 - 1}


def common_native(natives: Collection[NativeType | None]) -> NativeType | None:
    """Return the type whose rule reads all values of a column, None if there is none.

    :param natives: the types that the column had, oldest first; None for an unknown one.
    """
    known = [native for native in natives if native]
    if not known or len(known) < len(natives):
        return None
    widest = known[-1]
    for native in known:
        if holds(_rule(native).sql_type, _rule(widest).sql_type):
            widest = native
    # A time's digits are not part of its rule, but limit its possible values.
    finest = max(native.digits for native in known)
    return replace(widest, digits=finest) if all(_is_read_by(widest, native) for native in known) else None


def _rule(native: NativeType, column: str = "", connector: str = "") -> ColumnType:
    return column_type(native.connect_field(column), connector)


def _is_read_by(widest: NativeType, other: NativeType) -> bool:
    """Return whether the rule of one type reads the values of another: a wider integer, a longer decimal of the same scale."""
    same_form = (widest.name, widest.scale, widest.is_unsigned) == (other.name, other.scale, other.is_unsigned)
    return same_form and reads_alike(_rule(widest).sql_type, _rule(other).sql_type)


def schema_topic_types(
    columns: Mapping[str, NativeType], seen: Mapping[str, SeenValues], connector: str, *, proven: Collection[str] = ()
) -> dict[str, ColumnType]:
    """Return the types of the columns whose values prove them.

    :param columns: by name: the connector's encoding of the values in its default modes.
    :param seen: the observed values, by column.
    :param proven: columns whose types were proven before. A mode with another encoding of them is ruled out.
    """
    there = {name: native for name, native in columns.items() if name in seen}
    by_name = [(name, native, seen[name]) for name, native in there.items()]
    known = [columns[name] for name in proven if name in columns and columns[name].units]
    modes = _time_modes([(native, values) for _, native, values in by_name if native.units], known)
    is_precise = _decimals_are_precise([(native, values) for _, native, values in by_name if native.name == DECIMAL])
    bytes_are_base64 = any(native.type == "bytes" and not native.name and values.some_no_hex for _, native, values in by_name)

    def fits(native: NativeType, values: SeenValues) -> bool:
        if native.units:
            units = {_UNITS_BY_MODE[mode](native, native.units) for mode in modes}
            return values.kinds == {"whole"} and units == {native.units}
        if native.name == DECIMAL:
            return _is_decimal(native, values, is_precise=is_precise)
        if native.type == "bytes":
            return values.kinds == {"text"} and not values.some_no_base64 and bytes_are_base64
        return _is_plain(native, values)

    return {name: _rule(native, name, connector) for name, native, values in by_name if fits(native, values)}


def _time_modes(times: Sequence[tuple[NativeType, SeenValues]], known: Sequence[NativeType]) -> tuple[str, ...]:
    """Return the modes in which a connector could have written all the values.

    :param known: types of columns whose units were proven before. Modes with other units for them are ruled out.
    """
    numbers = [(native, values) for native, values in times if values.kinds == {"whole"}]
    modes = [mode for mode, units in _UNITS_BY_MODE.items() if all(units(native, native.units or 0) == native.units for native in known)]
    found = [mode for mode in modes if all(_could_be(native, values, mode) for native, values in numbers)]
    # Types are read only in the default mode, even if the values prove another.
    return tuple(found) if "adaptive" in found else ()


def _could_be(native: NativeType, values: SeenValues, mode: str) -> bool:
    units = _UNITS_BY_MODE[mode](native, native.units or 1)
    some_part_of = {
        _MILLIS: values.some_part_of_1000,
        _MICROS: values.some_part_of_1000000,
        _NANOS: values.some_part_of_1000000000,
    }
    # In microseconds, a second with three digits is a multiple of 1000.
    step = units // 10**native.digits if native.digits else units
    return values.greatest <= native.seconds * units and not some_part_of.get(step, False)


def _decimals_are_precise(decimals: Sequence[tuple[NativeType, SeenValues]]) -> bool:
    """Return whether texts are proven base64 (``decimal.handling.mode=precise``) rather than the numbers themselves (``string``)."""
    texts = [(native, values) for native, values in decimals if values.kinds == {"text"} and not native.is_unsigned]
    if any(values.some_no_base64 for _, values in texts):
        return False
    # A number's text has all the digits of its scale.
    return any(values.some_no_numeral or (native.scale > 0 and values.some_no_point) for native, values in texts)


def _is_decimal(native: NativeType, values: SeenValues, *, is_precise: bool) -> bool:
    if values.kinds <= {"whole", "fraction"}:
        return True
    return values.kinds == {"text"} and not values.some_no_base64 and (is_precise or native.is_unsigned)


def _is_plain(native: NativeType, values: SeenValues) -> bool:
    """Return whether the values fit a type that has one encoding in every mode."""
    if native.name == DATE:
        return values.kinds == {"whole"} and values.greatest <= LAST_DAY
    if native.name == ZONED:
        return values.kinds == {"text"} and not values.some_no_instant
    if native.type in _GREATEST_INTEGER:
        return values.kinds == {"whole"} and values.greatest <= _GREATEST_INTEGER[native.type]
    kinds = {"boolean": {"boolean"}, "float": {"whole", "fraction"}, "double": {"whole", "fraction"}, "string": {"text"}}
    return native.type in kinds and values.kinds <= kinds[native.type]
