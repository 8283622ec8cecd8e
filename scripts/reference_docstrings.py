"""reference_docstrings: what docstrings say, as Markdown."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable
from functools import cache
from typing import Any

_ROLE = re.compile(r":(?:class|meth|func|mod|data|attr):`~?([\w.]+)`")
_PAGE = re.compile(r"\bdocs/([\w/-]+)\.md(#[\w-]+)?")
_FIELD = re.compile(r"^:(param|return|raises?)\b ?([^:]*):", re.MULTILINE)


def markdown(text: str) -> str:
    """Return a docstring's text as Markdown, a line for each paragraph: roles are names in code, pages links from ``docs/reference``."""
    named = _ROLE.sub(lambda role: f"`{role[1].rsplit('.', 1)[-1]}`", text)
    linked = _PAGE.sub(lambda page: f"[{page[1].rsplit('/', 1)[-1].replace('-', ' ')}](../{page[1]}.md{page[2] or ''})", named)
    paragraphs = re.split(r"\n\s*\n", linked.replace("``", "`").strip())
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def purpose_of(thing: Any) -> str:
    """Return what stands before the fields of a class's or function's own docstring, as Markdown."""
    return markdown(_FIELD.split(inspect.cleandoc(thing.__doc__ or ""), maxsplit=1)[0])


def parameters_of(thing: Any) -> dict[str, str]:
    """Return the described parameters of a class's or function's own docstring, as Markdown by name."""
    _, *parts = _FIELD.split(inspect.cleandoc(thing.__doc__ or ""))
    described = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    return {name.strip(): " ".join(markdown(text).split()) for kind, name, text in described if kind == "param"}


@cache
def described_members(cls: type[Any]) -> dict[str, str]:
    """Return the docstrings below the fields or members of a class's own body, as Markdown by name."""
    (body,) = (node for node in ast.parse(textwrap.dedent(inspect.getsource(cls))).body if isinstance(node, ast.ClassDef))
    found = {}
    for before, node in zip(body.body, body.body[1:], strict=False):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for target in [before.target] if isinstance(before, ast.AnnAssign) else getattr(before, "targets", []):
                found[target.id] = " ".join(markdown(node.value.value).split())
    return found


def cell(text: str) -> str:
    """Return a text as the cell of a table."""
    return " ".join(text.split()).replace("|", "\\|") or "–"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table."""
    lines = [list(head), *(list(map(cell, row)) for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
