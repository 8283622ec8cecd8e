"""Overlap: whether two lists of globs may match one flow, without knowing the flows."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable

from airflow_cdc.model.globs import is_glob

_TOKEN = re.compile(r"\[!?\]?[^\]]*\]|.", re.DOTALL)


def may_share(one: Iterable[str], other: Iterable[str]) -> tuple[str, str] | None:
    """Return two globs, one of each list, that may match one flow; None where no flow can match both lists.

    Sets (``[ab]``) are compared exactly only with letters: two sets count as overlapping.
    """
    wanted, refused = _parted(one)
    others, others_refused = _parted(other)
    for glob in wanted:
        for rival in others:
            if (
                _meet(_tokens(glob), _tokens(rival))
                and not any(_covers(out, rival) for out in refused)
                and not any(_covers(out, glob) for out in others_refused)
            ):
                return glob, rival
    return None


def _parted(globs: Iterable[str]) -> tuple[list[str], list[str]]:
    known = list(globs)
    refused = [glob[1:] for glob in known if glob.startswith("!")]
    return [glob for glob in known if not glob.startswith("!")] or ["*"], refused


def _covers(out: str, glob: str) -> bool:
    """Return whether ``out`` certainly matches everything that ``glob`` matches."""
    if not is_glob(glob):
        return fnmatch.fnmatchcase(glob, out)
    # A star may cover the other glob's wildcards; a question mark or a set would treat such a character as one letter. What is within
    # a set need not be in a name.
    text = "".join("?" if token.startswith("[") else token for token in _tokens(glob))
    return glob == out or (not set("?[") & set(out) and fnmatch.fnmatchcase(text, out))


def _tokens(glob: str) -> tuple[str, ...]:
    return tuple(_TOKEN.findall(glob))


def _meet(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Return whether some text matches both: walk both at once, along every path that their stars allow."""
    ahead, seen = [(0, 0)], {(0, 0)}
    while ahead:
        at, there = ahead.pop()
        if at == len(one) and there == len(other):
            return True
        token, rival = one[at : at + 1], other[there : there + 1]
        steps = set()
        if token == ("*",):
            steps |= {(at + 1, there), *([(at, there + 1)] if rival else [])}
        if rival == ("*",):
            steps |= {(at, there + 1), *([(at + 1, there)] if token else [])}
        if token and rival and not steps and _may_be_one(token[0], rival[0]):
            steps = {(at + 1, there + 1)}
        ahead += steps - seen
        seen |= steps
    return False


def _may_be_one(token: str, other: str) -> bool:
    if is_glob(token) and is_glob(other):
        return True
    return fnmatch.fnmatchcase(other, token) if is_glob(token) else fnmatch.fnmatchcase(token, other)
