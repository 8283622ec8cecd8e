"""Plain JSON: the only converter between state documents or reports and JSON values.

A dataclass takes part by its base class: :class:`JsonObject` is an object with one member per field, :class:`JsonArray` an array of the
fields' values in their order, for what stands in a file ten thousand times. Both follow the declared types of the fields:

    str, int, float, bool, Any      as they are
    BigInt                          the number as text
    an Enum                         its value
    X | None                        null, or as X
    tuple[X, ...], Sequence[X]      an array; list[X] too
    tuple[str, int]                 an array, of types that are spelled as they are
    frozenset[X]                    an array, sorted
    Mapping[str, X], dict[int, X]   an object; integers as keys become text
    a JsonObject or JsonArray       as that class is spelled

A field that has a default may be absent in a document, unless the class requires it. Members and elements that no field has are ignored: a
newer version may have added them. A class with another form overrides ``to_json`` and ``from_json``, and may use the results of
``super()``. Types of scalars are not checked: a text where a number belongs is read as the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from enum import Enum
from operator import attrgetter
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, TypeVar, Union, get_args, get_origin, get_type_hints

BigInt = Annotated[int, "as text"]
"""A number that may exceed 2^53, which many JSON readers lose."""

_Convert = Callable[[Any], Any]
_Object = TypeVar("_Object", bound="JsonObject")
_Array = TypeVar("_Array", bound="JsonArray")


@dataclass(frozen=True)
class _Options:
    """Options of a class, besides its fields' types."""

    names: Mapping[str, str] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()
    omits_defaults: bool = False


class JsonObject:
    """Base of dataclasses that are written as a JSON object.

    :param names: by field: the name of its member, where it differs.
    :param required: fields whose absence must not pass for their default.
    :param own: fields that ``to_json`` leaves out and ``from_json`` takes unchanged: the class converts them itself.
    :param omits_defaults: whether a field that equals its default is left out.
    """

    _options: ClassVar[_Options] = _Options()

    def __init_subclass__(
        cls,
        *,
        names: Mapping[str, str] | None = None,
        required: Iterable[str] = (),
        own: Iterable[str] = (),
        omits_defaults: bool = False,
    ) -> None:
        super().__init_subclass__()
        cls._options = _Options(names or {}, frozenset(required), frozenset(own), omits_defaults)

    def to_json(self) -> dict[str, Any]:
        """Return the value as plain JSON values."""
        return _object_of(type(self)).write(self)

    @classmethod
    def from_json(cls: type[_Object], document: Mapping[str, Any]) -> _Object:
        """Read what :meth:`to_json` wrote.

        :raises KeyError, TypeError, ValueError, AttributeError: when the document has another shape.
        """
        made: _Object = _object_of(cls).read(document)
        return made


class JsonArray:
    """Base of dataclasses that are written as a JSON array."""

    def to_json(self) -> list[Any]:
        """Return the value as plain JSON values."""
        return _array_of(type(self)).write(self)

    @classmethod
    def from_json(cls: type[_Array], values: Sequence[Any]) -> _Array:
        """Read what :meth:`to_json` wrote.

        :raises TypeError, ValueError, AttributeError: when the values have another shape.
        """
        made: _Array = _array_of(cls).read(values)
        return made


class _ObjectSpelling:
    """Writer and reader of one class of objects, derived once from its declarations."""

    def __init__(self, cls: type[Any], options: _Options) -> None:
        self._make = cls
        converters = _converters(cls, options.own)
        self._names = [each.name for each in fields(cls) if each.name not in options.own]
        self._writers = [(name, write) for name, (write, _) in converters.items() if write]
        self._readers = [(name, read) for name, (_, read) in converters.items() if read]
        self._members = {options.names.get(each.name, each.name): each.name for each in fields(cls)}
        self._required, self._renamed = options.required, options.names
        self._defaults = _defaults(cls) if options.omits_defaults else {}

    def write(self, value: Any) -> dict[str, Any]:
        document = vars(value)
        if len(document) != len(self._names):
            document = {name: document[name] for name in self._names}
        if defaults := self._defaults:
            document = {name: each for name, each in document.items() if name not in defaults or each != defaults[name]}
        else:
            document = document.copy()
        for name, write in self._writers:
            if name in document:
                document[name] = write(document[name])
        return {self._renamed.get(name, name): each for name, each in document.items()} if self._renamed else document

    def read(self, document: Mapping[str, Any]) -> Any:
        values = self._known(document) if self._renamed else {**document}
        for name, read in self._readers:
            if name in values:
                values[name] = read(values[name])
        if self._required and (missing := self._required - values.keys()):
            raise KeyError(f"{self._make.__name__} lacks {', '.join(sorted(missing))}")
        try:
            return self._make(**values)
        except TypeError:
            # Unknown members are rare. Checking for them first would cost time for each of the ten thousand objects in a survey.
            known = self._known(values) if not self._renamed else values
            if len(known) == len(values):
                raise
            return self._make(**known)

    def _known(self, document: Mapping[str, Any]) -> dict[str, Any]:
        members = self._members
        return {members[name]: each for name, each in document.items() if name in members}


class _ArraySpelling:
    """As above, for one class of arrays."""

    def __init__(self, cls: type[Any]) -> None:
        self._make = cls
        converters = _converters(cls, frozenset())
        self._writers = [(place, write) for place, (write, _) in enumerate(converters.values()) if write]
        self._readers = [(place, read) for place, (_, read) in enumerate(converters.values()) if read]
        self._names = list(converters)

    def write(self, value: Any) -> list[Any]:
        members = vars(value)
        values = [members[name] for name in self._names]
        for place, write in self._writers:
            values[place] = write(values[place])
        return values

    def read(self, values: Sequence[Any]) -> Any:
        known = list(values[: len(self._names)])
        for place, read in self._readers:
            if place < len(known):
                known[place] = read(known[place])
        return self._make(*known)


_OBJECTS: dict[type[Any], _ObjectSpelling] = {}
_ARRAYS: dict[type[Any], _ArraySpelling] = {}


def _object_of(cls: type[JsonObject]) -> _ObjectSpelling:
    found = _OBJECTS.get(cls)
    if found is None:
        found = _OBJECTS[cls] = _ObjectSpelling(cls, cls._options)
    return found


def _array_of(cls: type[JsonArray]) -> _ArraySpelling:
    found = _ARRAYS.get(cls)
    if found is None:
        found = _ARRAYS[cls] = _ArraySpelling(cls)
    return found


def _defaults(cls: type[Any]) -> dict[str, Any]:
    plain = {each.name: each.default for each in fields(cls) if each.default is not MISSING}
    return plain | {each.name: each.default_factory() for each in fields(cls) if each.default_factory is not MISSING}


def _converters(cls: type[Any], own: frozenset[str]) -> dict[str, tuple[_Convert | None, _Convert | None]]:
    """Return each field's writer and reader; None means unchanged."""
    declared = get_type_hints(cls, include_extras=True)
    return {each.name: (None, None) if each.name in own else _converter(declared[each.name]) for each in fields(cls)}


def _converter(declared: Any) -> tuple[_Convert | None, _Convert | None]:
    origin, parts = get_origin(declared), get_args(declared)
    if declared in {str, int, float, bool, Any}:
        return None, None
    if declared == BigInt:
        return str, int
    if origin in {Union, UnionType}:
        (some,) = (part for part in parts if part is not NoneType)
        write, read = _converter(some)
        return write and _or_none(write), read and _or_none(read)
    if origin is not None:
        return _of_collection(declared, origin, parts)
    if isinstance(declared, type) and issubclass(declared, JsonObject | JsonArray):
        return declared.to_json, declared.from_json
    if isinstance(declared, type) and issubclass(declared, Enum):
        return attrgetter("value"), declared
    raise TypeError(f"{declared} has no spelling in JSON")


def _of_collection(declared: Any, origin: Any, parts: tuple[Any, ...]) -> tuple[_Convert, _Convert]:
    if issubclass(origin, Mapping):
        return _of_mapping(*parts)
    if origin is tuple and parts[-1] is not Ellipsis:
        if any(_converter(part) != (None, None) for part in parts):
            raise TypeError(f"{declared} has no spelling in JSON")
        return list, tuple
    write, read = _converter(parts[0])
    if issubclass(origin, frozenset):
        return _each(write, sorted), _each(read, frozenset)
    return _each(write, list), _each(read, list if origin is list else tuple)


def _of_mapping(key: Any, value: Any) -> tuple[_Convert, _Convert]:
    write, read = _converter(value)
    if key is int:
        return (
            lambda found: {str(name): write(each) if write else each for name, each in found.items()},
            lambda found: {int(name): read(each) if read else each for name, each in found.items()},
        )
    return (
        (lambda found: {name: write(each) for name, each in found.items()}) if write else dict,
        (lambda found: {name: read(each) for name, each in found.items()}) if read else dict,
    )


def _each(convert: _Convert | None, collect: _Convert) -> _Convert:
    return (lambda values: collect(map(convert, values))) if convert else collect


def _or_none(convert: _Convert) -> _Convert:
    return lambda value: None if value is None else convert(value)
