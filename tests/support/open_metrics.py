"""A strict reader of OpenMetrics text: what the specification's grammar and its rules for counters and gauges allow, and nothing else."""

from __future__ import annotations

import re

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_HEAD = re.compile(rf"# (TYPE|UNIT|HELP) ({_NAME}) (.*)")
_SAMPLE = re.compile(rf"({_NAME})\{{(.*)\}} (-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\n"])*)"(?:,(?=[a-zA-Z_])|$)')
_ESCAPED = {r"\\": "\\", r"\n": "\n", r"\"": '"'}

Labels = frozenset[tuple[str, str]]


def read_open_metrics(text: str) -> dict[str, dict[Labels, float]]:
    """Return the values by metric family and labels.

    :raises AssertionError: for what a reader must refuse.
    """
    lines = text.split("\n")
    assert lines[-2:] == ["# EOF", ""], "an exposition ends with # EOF and a line feed"
    families: dict[str, dict[str, str]] = {}
    values: dict[str, dict[Labels, float]] = {}
    current = ""
    for line in lines[:-2]:
        if head := _HEAD.fullmatch(line):
            kind, name, told = head.groups()
            assert name == current or name not in families, f"the family {name} is cut in two"
            current = name
            assert kind not in families.setdefault(name, {}), f"{kind} of {name} twice"
            assert name not in values, f"{kind} of {name} behind its values"
            families[name][kind] = told
            assert kind != "TYPE" or told in {"counter", "gauge"}, told
            assert kind != "UNIT" or name.endswith(f"_{told}"), f"{name} does not end with its unit {told}"
            continue
        found = _SAMPLE.fullmatch(line)
        assert found, f"no line of OpenMetrics: {line!r}"
        name, inside, value = found.groups()
        kind = families[current]["TYPE"]
        assert name == (f"{current}_total" if kind == "counter" else current), f"{name} in the family {current}"
        assert not (kind == "counter" and float(value) < 0), line
        labels = _labels(inside)
        assert labels not in values.setdefault(current, {}), f"{line} twice"
        values[current][labels] = float(value)
    assert values.keys() == families.keys()
    return values


def _labels(inside: str) -> Labels:
    found, end = [], 0
    while end < len(inside):
        match = _LABEL.match(inside, end)
        assert match, f"no labels: {inside!r}"
        found.append((match[1], re.sub(r"\\.", lambda escaped: _ESCAPED[escaped[0]], match[2])))
        end = match.end()
    assert len(dict(found)) == len(found), f"a label twice: {inside}"
    return frozenset(found)
