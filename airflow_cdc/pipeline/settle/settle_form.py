"""Settle the form of the texts of a column that identifies rows: one for all of a table, in which equal values stay equal.

A table records the form of its texts where they are no plain ones. A table of an earlier version records none: its texts have the form
that all of the archive's schemas show, if that is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from airflow_cdc.model.errors import SchemaChangeError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.pipeline.decode.types.connect_types import ColumnType, column_type
from airflow_cdc.pipeline.decode.types.text_forms import TEXT, TextForm, common_form
from airflow_cdc.pipeline.survey.archived_schemas import ArchivedFields
from airflow_cdc.pipeline.target.target_table import TargetTable


@dataclass(frozen=True, kw_only=True)
class Forms:
    """What is known of the forms of a flow's texts."""

    flow: CdcFlow
    table: TargetTable | None
    archived: Callable[[str], ArchivedFields]
    connector: str
    without_key: bool

    def of(self, name: str, rules: Iterable[ColumnType]) -> TextForm:
        """Return the form of a STRING column's texts: the table's, or of a new column the finest that the archive shows.

        :param rules: of the microbatch's events.
        :raises SchemaChangeError: when the table's texts are of a coarser form, or may be; or when the forms are of several kinds, of
            which only a declaration says that equal values have equal texts.
        """
        return _Column(self, name, frozenset(rule.text_form for rule in rules)).settled()


@dataclass(frozen=True)
class _Column:
    known: Forms
    name: str
    now: frozenset[TextForm]

    def settled(self) -> TextForm:
        table = self.known.table
        if table and table.columns.get(self.name) == "STRING":
            return self._of_table(table)
        form = _finest(self.now)
        if form.is_plain and not self._may_be_several:
            return form
        seen = self.now | self._archived
        self._refuse_several_kinds(self.now)
        return _finest(seen if self._may_be_several else [each for each in seen if each.kind == form.kind])

    def _of_table(self, table: TargetTable) -> TextForm:
        held = table.forms.get(self.name)
        if held is None and all(form.is_plain for form in self.now):
            return TEXT
        seen = self.now | ({held} if held else self._archived)
        self._refuse_several_kinds(seen)
        form = held or _finest(seen)
        # Without a record, nothing shows which of several forms the table's texts have.
        if any(each.kind == form.kind and (each.digits > form.digits if held else each != form) for each in seen):
            raise self._refused(
                f"are of form {held}" if held else "may be of several forms",
                seen,
                f"Make the table anew, with the finest form of all archived events: airflow-cdc retype {self.known.flow.name}, or rebuild"
                " the flow.",
            )
        return form

    def _refuse_several_kinds(self, forms: frozenset[TextForm]) -> None:
        if common_form(forms) is None and not self._may_be_several:
            raise self._refused(
                "are of several kinds",
                forms,
                "Declare under 'columns' in the flows file a type that holds the values of all and is no text, such as DECIMAL or"
                f" TIMESTAMP_NTZ, and make the table anew: airflow-cdc retype {self.known.flow.name}, or rebuild the flow. If equal values"
                " have equal texts, declare STRING: the next run goes on with them.",
            )

    def _refused(self, what: str, forms: Iterable[TextForm], next_step: str) -> SchemaChangeError:
        table, flow = self.known.table, self.known.flow
        where = f"table {table.uri}" if table else "the new table"
        seen = ", ".join(sorted(map(str, forms)))
        return SchemaChangeError(
            f"Flow {flow.name}: column {self.name} of {where} identifies rows and is kept as text, and its texts {what} (seen: {seen}):"
            " a value would have two texts, and a row would not be found.",
            next_step=f"Nothing of these events was merged, and none is lost. {next_step}",
        )

    @cached_property
    def _archived(self) -> frozenset[TextForm]:
        fields = self.known.archived(self.known.flow.topic).by_column.get(self.name, ())
        return frozenset(column_type(each, self.known.connector).text_form for each in fields)

    @property
    def _may_be_several(self) -> bool:
        """Whether texts may be of several kinds: a person said so; or of a row's values that no event finds, the report has the number."""
        return self.name in self.known.flow.columns or self.known.without_key


def _finest(forms: Iterable[TextForm]) -> TextForm:
    return max(forms, key=lambda form: (not form.is_plain, form.digits, form.kind))
