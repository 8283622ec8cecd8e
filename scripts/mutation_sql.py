"""Changes of the SQL in the package's texts, as an operator of cosmic-ray: its own ones know Python alone, and here most rules are SQL."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from cosmic_ray.operators.operator import Example, Operator

_PAIRS = (
    (r"\bAND\b", "OR"),
    (r"\bOR\b(?! REPLACE)", "AND"),
    (r"\bNOT (?=\(|coalesce|\w|\{)", ""),
    (r"\bIS NULL\b", "IS NOT NULL"),
    (r"\bIS DISTINCT\b", "IS NOT DISTINCT"),
    (r"\bNULLS FIRST\b", "NULLS LAST"),
    (r"\bNULLS LAST\b", "NULLS FIRST"),
    (r" IGNORE NULLS\b", ""),
    (r"\bDESC\b", "ASC"),
    (r"\bUNION ALL\b", "UNION"),
    (r"\bLEFT JOIN\b", "JOIN"),
    (r"(?<!LEFT )(?<!SEMI )(?<!ANTI )\bJOIN\b", "LEFT JOIN"),
    (r"\bSEMI\b", "ANTI"),
    (r"\bANTI\b", "SEMI"),
    (r"\bEXISTS ?\(", "NOT EXISTS ("),
    (r" < ", " <= "),
    (r" <= ", " < "),
    (r" > ", " >= "),
    (r" >= ", " > "),
    (r" = ", " <> "),
    (r" <> ", " = "),
    (r" \+ ", " - "),
    (r" - ", " + "),
    (r"\bIN \(", "NOT IN ("),
    (r"\bmin\(", "max("),
    (r"\bmax\(", "min("),
    (r"\bmin_by\(", "max_by("),
    (r"\bmax_by\(", "min_by("),
    (r"\barg_min\(", "arg_max("),
    (r"\barg_max\(", "arg_min("),
    (r"\bbool_or\(", "bool_and("),
    (r"\bbool_and\(", "bool_or("),
    (r"\bfirst_value\(", "last_value("),
    (r"\blast_value\(", "first_value("),
    (r"\blag\(", "lead("),
    (r"\blead\(", "lag("),
    (r"\bleast\(", "greatest("),
    (r"\bgreatest\(", "least("),
    (r"\btrue\b", "false"),
    (r"\bfalse\b", "true"),
    (r"(?<=')[curd](?=')", "x"),
    (r"(?<![\w.'{])0(?![\w.'}])", "1"),
    (r"(?<![\w.'{])1(?![\w.'}])", "2"),
)
_CHANGES = [(re.compile(pattern), with_) for pattern, with_ in _PAIRS]
# Words that only SQL has: a text without them is a name, a message or a part that is too small to tell.
_IS_SQL = re.compile(
    r"\b(AND|OR|NOT|NULLS?|IS|CASE|WHEN|THEN|ELSE|SELECT|FROM|WHERE|JOIN|UNION|OVER|IN|AS|EXISTS|ORDER BY|DESC|QUALIFY)\b"
    r"|\b(coalesce|min|max|min_by|max_by|arg_min|arg_max|bool_or|bool_and|least|greatest|lag|lead|filter|exists|count_if|list_\w+)\("
    r"|^ ?(<|<=|>|>=|=|<>) ?$"
)
_NO_SQL = ("raise_stmt", "import_from")


class SqlText(Operator):  # type: ignore[misc]
    """Replaces one word of SQL: AND by OR, ``<`` by ``<=``, min by max, an operation's letter by another."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        """Return where each change stands."""
        for start, end, _ in _changes(node):
            yield _place(node, start), _place(node, end)

    def mutate(self, node: Any, index: int) -> Any:
        """Change one place."""
        start, end, text = _changes(node)[index]
        node.value = node.value[:start] + text + node.value[end:]
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Return one, as the library wants it."""
        return (Example("where = 'a AND b'", "where = 'a OR b'"),)


def _changes(node: Any) -> list[tuple[int, int, str]]:
    if node.type not in ("string", "fstring_string") or not _IS_SQL.search(node.value) or _is_prose(node):
        return []
    found = [(each.start(), each.end(), each.expand(with_)) for pattern, with_ in _CHANGES for each in pattern.finditer(node.value)]
    return sorted(found)


def _is_prose(node: Any) -> bool:
    """Whether a text is a docstring or an error's."""
    outer = node
    while outer.parent is not None:
        outer = outer.parent
        if outer.type in _NO_SQL:
            return True
        if outer.type == "simple_stmt" and outer.children[0] is node:
            return True
    return False


def _place(node: Any, at: int) -> tuple[int, int]:
    lines = node.value[:at].split("\n")
    line, column = node.start_pos
    return (line, column + len(lines[0])) if len(lines) == 1 else (line + len(lines) - 1, len(lines[-1]))
