"""Routes: map topics to tables by regular expression, like Kafka Connect's RegexRouter, where a flow names no table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Any, TypeVar

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.engine import Engine
from airflow_cdc.model.flow.new_topics import OnNewTopic
from airflow_cdc.model.flow.policies import OnUnknownTypes
from airflow_cdc.model.flow.setting_forms import catalog_name
from airflow_cdc.model.places import in_one_spelling

_GROUP_OF_JAVA = re.compile(r"\$(\d|\{)")


@dataclass(frozen=True)
class Route:
    """The tables of all topics that match. Validated here once."""

    topic: str
    """Regular expression, matched against a topic's whole name."""
    table: str | None = None
    r"""Their tables, with ``\1`` or ``\g<name>`` for a group's match; None: the topics' names."""
    catalog_table: tuple[str, ...] = ()
    """Their tables' names in Spark's catalog, by part, with groups like ``table``; empty: none."""

    def __post_init__(self) -> None:
        try:
            pattern = re.compile(self.topic)
        except re.error as error:
            raise ConfigurationError(
                f"Route {self.topic!r}: topic is no regular expression: {error}.",
                next_step="Correct it in the flows file; named groups are spelled (?P<name>…), and dots of a topic's name \\.",
            ) from error
        if not self._templates:
            raise ConfigurationError(
                f"Route {self.topic!r} names neither a table nor a catalog_table.", next_step="Give it one of them in the flows file."
            )
        for template in self._templates:
            _check_template(pattern, template)

    @property
    def _templates(self) -> tuple[str, ...]:
        return (*((self.table,) if self.table else ()), *self.catalog_table)

    def matches(self, topic: str) -> bool:
        """Return whether a topic takes this route."""
        return re.fullmatch(self.topic, topic) is not None

    def applied_to(self, flow: CdcFlow) -> CdcFlow:
        """Return a flow with the route's tables where it names none itself; unchanged where the topic does not match.

        :raises ConfigurationError: when the topic yields a table name that is empty or not allowed.
        """
        match = re.fullmatch(self.topic, flow.topic)
        if match is None:
            return flow
        table = match.expand(self.table) if self.table else None
        catalog_table = tuple(map(match.expand, self.catalog_table))
        if table == "" or "" in catalog_table:
            raise ConfigurationError(
                f"Route {self.topic!r}: topic {flow.topic} makes an empty name of {' and '.join(self._templates)}.",
                next_step="Let the groups match something, or give the topic a flow of its own in the flows file.",
            )
        return replace(flow, table=flow.table or table, catalog_table=flow.catalog_table or catalog_table)

    @classmethod
    def from_mapping(cls, entry: Mapping[str, Any]) -> Route:
        """Build a route from one entry of a flows file.

        :raises ConfigurationError: for a setting that does not exist or has the wrong shape.
        """
        known = {item.name for item in fields(cls)}
        if unknown := sorted(set(entry) - known, key=str):
            raise ConfigurationError(
                f"Route {entry.get('topic', '?')!r}: unknown settings {unknown}, known are {sorted(known)}.",
                next_step="Correct the flows file; all other settings are a flow's.",
            )
        wrong = [name for name in ("topic", *entry) if not isinstance(entry.get(name), str) or not entry[name]]
        if wrong:
            raise ConfigurationError(f"Route {entry.get('topic', '?')!r}: {wrong[0]} is no text.", next_step="Correct the flows file.")
        try:
            names = catalog_name(entry["catalog_table"]) if "catalog_table" in entry else ()
        except ValueError as error:
            raise ConfigurationError(
                f"Route {entry['topic']!r}: catalog_table is {entry['catalog_table']!r}, expected {error}.",
                next_step="Correct the flows file.",
            ) from error
        return cls(entry["topic"], entry.get("table"), names)


def _check_template(pattern: re.Pattern[str], template: str) -> None:
    if found := _GROUP_OF_JAVA.search(template):
        raise ConfigurationError(
            f"Route {pattern.pattern!r}: {template!r} refers to a group as {found[0]}….",
            next_step=r"Groups are spelled \1 or \g<name> here.",
        )
    try:
        # The template is parsed first, so the text need not match.
        pattern.sub(template, "")
    except (re.error, IndexError) as error:
        raise ConfigurationError(
            f"Route {pattern.pattern!r}: {template!r} cannot be filled in: {error}; the expression has {pattern.groups} groups"
            f" {sorted(pattern.groupindex)}.",
            next_step=r"Refer to groups that it has, as \1 or \g<name>.",
        ) from error


class RoutedFlows(Mapping[str, CdcFlow]):
    """Settings by topic. Topics that only a route covers are found by key and not listed."""

    def __init__(
        self,
        flows: Mapping[str, CdcFlow],
        routes: Iterable[Route] = (),
        on_new_topic: OnNewTopic = OnNewTopic.CREATE,
        *,
        on_unknown_types: OnUnknownTypes | None = None,
        engine: Engine | None = None,
    ) -> None:
        self._flows = dict(flows)
        self._routes = tuple(routes)
        self.on_new_topic = on_new_topic
        """What happens to an undeclared topic."""
        self._defaults = {"on_unknown_types": on_unknown_types, "engine": engine}

    def __getitem__(self, topic: str) -> CdcFlow:
        route = next((route for route in self._routes if route.matches(topic)), None)
        return self.with_defaults(route.applied_to(self._flows.get(topic, CdcFlow(topic))) if route else self._flows[topic])

    def with_defaults(self, flow: CdcFlow) -> CdcFlow:
        """Return a flow with the document's defaults where it sets none itself."""
        missing = {name: value for name, value in self._defaults.items() if value is not None and getattr(flow, name) is None}
        return replace(flow, **missing) if missing else flow  # type: ignore[arg-type] # each of its own setting

    def __iter__(self) -> Iterator[str]:
        return iter(self._flows)

    def __len__(self) -> int:
        return len(self._flows)

    def __bool__(self) -> bool:
        # Routes alone are settings too: `flows or {}` must keep them.
        return bool(self._flows or self._routes or self.on_new_topic is not OnNewTopic.CREATE or any(self._defaults.values()))


def settings_of(settings: Mapping[str, CdcFlow], topic: str) -> CdcFlow:
    """Return a topic's settings, or the defaults where it has none."""
    return settings.get(topic) or with_defaults(settings, CdcFlow(topic))


def with_defaults(settings: Mapping[str, CdcFlow], flow: CdcFlow) -> CdcFlow:
    """Return a flow without own settings, with the defaults of all flows."""
    return settings.with_defaults(flow) if isinstance(settings, RoutedFlows) else flow


def refuse_shared_tables(flows: Iterable[CdcFlow], lake: str, *, folds_case: bool = False) -> None:
    """Refuse two topics that share a table, or whose tables lie one inside the other.

    :param folds_case: whether the lake's store is case-insensitive.
    :raises ConfigurationError: naming both topics.
    """
    by_name: dict[tuple[str, ...], CdcFlow] = {}
    by_place: dict[str, CdcFlow] = {}
    for flow in flows:
        place = in_one_spelling(flow.table_path(lake))
        place = place.casefold() if folds_case else place
        others = [by_place.setdefault(place, flow)]
        if flow.catalog_table:
            # Catalogs are case-insensitive.
            others.append(by_name.setdefault(tuple(part.lower() for part in flow.catalog_table), flow))
        for other in others:
            if other is not flow:
                raise _shared(other, flow, lake)
    for place, flow in by_place.items():
        parents = (place[:at] for at, character in enumerate(place) if character == "/" and at)
        outer = next((by_place[parent] for parent in parents if parent in by_place), None)
        if outer:
            raise _shared(outer, flow, lake)


def _shared(one: CdcFlow, other: CdcFlow, lake: str) -> ConfigurationError:
    tables = "; ".join(
        f"{flow.topic}: {', '.join((flow.table_path(lake), *filter(None, ['.'.join(flow.catalog_table)])))}" for flow in (one, other)
    )
    return ConfigurationError(
        f"Topics {one.topic} and {other.topic} would share a table, or one would lie in the other's ({tables}).",
        next_step="Give each a table of its own: under 'flows' in the flows file, or by a route that gives them different tables.",
    )


def flows_from_document(document: Any) -> Mapping[str, CdcFlow]:
    """Return a parsed flows file's settings by topic (``flows:`` and ``routes:``, lists of settings; ``on_new_topic:``,
    ``on_unknown_types:``, ``engine:``).

    :raises ConfigurationError: when the document has another shape or names a topic twice.
    """
    lists = dict(document) if isinstance(document, Mapping) else {"flows": document}
    policy = _chosen(OnNewTopic, "on_new_topic", lists.pop("on_new_topic", OnNewTopic.CREATE.value))
    unknown = _chosen(OnUnknownTypes, "on_unknown_types", lists.pop("on_unknown_types")) if "on_unknown_types" in lists else None
    engine = _chosen(Engine, "engine", lists.pop("engine")) if "engine" in lists else None
    if document == {} or not set(lists) <= {"flows", "routes"} or not all(map(_is_list_of_settings, lists.values())):
        raise ConfigurationError(
            "The flows file must hold a list of flows under 'flows:', of routes under 'routes:', and nothing else but 'on_new_topic:',"
            " 'on_unknown_types:' and 'engine:'.",
            next_step="See docs/reference/flows-file.md.",
        )
    flows: dict[str, CdcFlow] = {}
    for entry in lists.get("flows", ()):
        flow = CdcFlow.from_mapping(entry)
        if flow.topic in flows:
            raise ConfigurationError(f"Topic {flow.topic} stands twice in the flows file.", next_step="Keep one of the two.")
        flows[flow.topic] = flow
    return RoutedFlows(flows, map(Route.from_mapping, lists.get("routes", ())), policy, on_unknown_types=unknown, engine=engine)


def on_new_topic(settings: Mapping[str, CdcFlow]) -> OnNewTopic:
    """Return the policy for topics that the settings do not declare."""
    return settings.on_new_topic if isinstance(settings, RoutedFlows) else OnNewTopic.CREATE


_Policy = TypeVar("_Policy", bound=Enum)


def _chosen(policies: type[_Policy], setting: str, value: Any) -> _Policy:
    choices = [policy.value for policy in policies]
    if value not in choices:
        raise ConfigurationError(f"{setting} is {value!r}, expected one of {choices}.", next_step="Correct the flows file.")
    return policies(value)


def _is_list_of_settings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(entry, Mapping) for entry in value)
