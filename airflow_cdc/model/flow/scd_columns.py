"""ScdColumns: the names of four columns of a table that keeps versions, and their form in the flows file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from airflow_cdc.model.columns import IS_CURRENT, PREFIX, PREVIOUS_KEY, VALID_FROM, VALID_TO, is_reserved
from airflow_cdc.model.errors import ConfigurationError


@dataclass(frozen=True, kw_only=True)
class ScdColumns:
    """Names that a table of versions has for four of our columns. Validated here once.

    Only the table has these names: the pipeline's frames have the default ones, which no source column may have.
    """

    valid_from: str = VALID_FROM
    """When the source committed the event that began the version."""
    valid_to: str = VALID_TO
    """When the source committed the event that ended it."""
    is_current: str = IS_CURRENT
    """Whether the version is the source's current one."""
    previous_key: str = PREVIOUS_KEY
    """The row's key at the commit before the one that moved it."""

    def __post_init__(self) -> None:
        for default, name in self.by_default.items():
            if not isinstance(name, str) or not name.strip():
                raise TypeError(f"names of columns, in place of {name!r}")
            if is_reserved(name) and name != default:
                raise ValueError(f"names that do not start with {PREFIX}, or {default} as it is, in place of {name!r}")
        # Delta compares names without case.
        names = [name.lower() for name in self.by_default.values()]
        twice = [name for name in self.by_default.values() if names.count(name.lower()) > 1]
        if twice:
            raise ValueError(f"four names that differ in more than case, in place of {twice}")

    @property
    def by_default(self) -> dict[str, str]:
        """The table's names by the default ones."""
        return {str(item.default): getattr(self, item.name) for item in fields(self)}

    def setting_of(self, name: str) -> str | None:
        """Return the setting that chooses a column's name; None for other names and for the default ones."""
        settings = {chosen.lower(): setting for setting, chosen in self.to_json().items() if not is_reserved(chosen)}
        return settings.get(name.lower())

    def refuse_columns(self, names: Iterable[str], flow: str) -> None:
        """Refuse source columns with a chosen name.

        :raises ConfigurationError: with the columns, the settings and the flow.
        """
        taken = {name: setting for name in names if (setting := self.setting_of(name))}
        if taken:
            raise ConfigurationError(
                f"Flow {flow}: scd_columns chooses names that columns of the source have (column: setting): {taken}.",
                next_step="Choose other names under scd_columns in the flows file; a table that exists takes them by a rebuild"
                " (docs/how-to/when-something-is-red.md#rebuild-a-flow). Or rename the source's columns in the connector (a ReplaceField"
                " transform) before they are archived.",
            )

    def to_json(self) -> dict[str, str]:
        """Return the names by setting."""
        return asdict(self)

    @classmethod
    def from_json(cls, names: Mapping[str, Any]) -> ScdColumns:
        """Return the names from :meth:`to_json`; settings of a newer version are ignored."""
        known = {item.name for item in fields(cls)}
        return cls(**{setting: name for setting, name in names.items() if setting in known})


def scd_columns(setting: Any) -> ScdColumns:
    """Return the names of a setting: a map with some of ``valid_from``, ``valid_to``, ``is_current`` and ``previous_key``.

    :raises TypeError: when it has another shape.
    :raises ValueError: for names that a table of versions cannot have.
    """
    known = [item.name for item in fields(ScdColumns)]
    if not isinstance(setting, Mapping) or not set(setting) <= set(known):
        raise TypeError(f"a map of names for some of {known}")
    return ScdColumns(**setting)
