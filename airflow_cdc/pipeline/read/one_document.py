"""One document to its end: Spark's JSON functions read the first document of a text, and ignore whatever follows it.

A text that holds more is found by one more member, :data:`END`, put before its last brace: a parser that reads the first document finds it
there only if the document ends where the text ends. The copy costs nothing that can be measured beside the parsing.
"""

from __future__ import annotations

from airflow_cdc.pipeline.spark import sql

END = "__cdc_end"
"""Member of a parsed :func:`sealed` text; NULL where the text is not one JSON object to its end, or an object without members."""

STRICT = "'allowNonNumericNumbers', 'false'"
"""An option of Spark's JSON reader, in a map: ``NaN`` is no JSON, and as a text it would become one with quotes."""

_BETWEEN = r"[\x00-\x20\x7F\u0085\u00A0\u1680\u2000-\u200F\u2028\u2029\u202F\u205F\u2060\u3000\uFEFF]"
"""What writers put between documents: white space of JSON or of Unicode, and control characters."""
_STARTS_NEXT = rf"\}}{_BETWEEN}*+(?=\{{)"
"""A brace that closes and one that opens behind it: outside of strings no JSON document holds that."""
_BACKSLASH, _QUOTE, _CUT = "\x01", "\x02", "\x03"
"""Stand-ins for what is escaped, and between documents: JSON allows no such characters."""
_LONE_SURROGATE = r"(?<!\\)((?:\\\\)*+)\\u[dD](?:[89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..\\u[dD])[c-fC-F]..)"

_IS_TEXT = r'^\s*"(?:[^"\\]|\\.)*+"\s*$'


def sealed(text: str) -> str:
    """Return the SQL of a JSON object's text with :data:`END` as its last member; any other text as it is."""
    trimmed = f"trim(TRAILING {sql.text(' ' + chr(9))} FROM {text})"
    return (
        f"CASE WHEN endswith({text}, '}}') THEN {_with_end(text)} WHEN endswith({trimmed}, '}}') THEN {_with_end(trimmed)} ELSE {text} END"
    )


def _with_end(text: str) -> str:
    # As bytes, because Spark would count the characters of a text.
    end = f',"{END}":0}}'.encode().hex()
    return f"CAST(concat(substring(CAST({text} AS BINARY), 1, octet_length({text}) - 1), X'{end}') AS STRING)"


def is_one(key: str) -> str:
    """Return the SQL that is true for a key's text that is no JSON, or is one JSON document to its end; never NULL."""
    # In a flat object the first brace that closes is the last character: nothing to parse.
    of_object = f"instr({key}, '}}') = length({key}) OR from_json({sealed(key)}, '{END} STRING').{END} IS NOT NULL"
    of_text = f"{key} RLIKE {sql.text(_IS_TEXT)}"
    return f"coalesce(CASE WHEN ltrim({key}) LIKE '{{%' THEN {of_object} WHEN ltrim({key}) LIKE '\"%' THEN {of_text} END, true)"


def has_lone_surrogate(text: str) -> str:
    r"""Return the SQL that is true for a JSON text that writes half of a surrogate pair, as ``\ud83d``: no UTF-8 can hold it.

    Spark reads it as a question mark, and two keys as one.
    """
    mentions = " OR ".join(f"contains({text}, {sql.text(start)})" for start in (r"\ud", r"\uD"))
    return f"coalesce(({mentions}) AND {text} RLIKE {sql.text(_LONE_SURROGATE)}, false)"


def without_lone_surrogates(text: str) -> str:
    """Return the SQL of a JSON text with U+FFFD in place of each half of a surrogate pair."""
    return f"if({has_lone_surrogate(text)}, regexp_replace({text}, {sql.text(_LONE_SURROGATE)}, {sql.text('$1' + chr(0xFFFD))}), {text})"


def starts_another(text: str) -> str:
    """Return the SQL that is true where a text may hold a document behind another, or white space that is none of JSON's behind it."""
    return f"coalesce({text} RLIKE {sql.text(rf'{_STARTS_NEXT}|[^{_BETWEEN[1:-1]}]{_BETWEEN}++$')}, false)"


def documents_of(text: str) -> str:
    """Return the SQL of the documents that a line holds one behind the other, as an array of texts; a single one is returned as it is.

    Documents are told apart outside of strings only. What is broken stays broken, and whole documents beside it are whole.
    """
    marked = f"replace(replace({text}, {sql.text(chr(92) * 2)}, {sql.text(_BACKSLASH)}), {sql.text(chr(92) + chr(34))}, {sql.text(_QUOTE)})"
    # Every second part between quotes is a string.
    part = f"if(at % 2 = 0, regexp_replace(part, {sql.text(_STARTS_NEXT)}, {sql.text('}' + _CUT)}), part)"
    cut = f"array_join(transform(split({marked}, '\"'), (part, at) -> {part}), '\"')"
    kept = f"replace(replace(document, {sql.text(_QUOTE)}, {sql.text(chr(92) + chr(34))}), {sql.text(_BACKSLASH)}, {sql.text(chr(92) * 2)})"
    # In front of a document and behind it.
    bare = f"regexp_replace({kept}, {sql.text(f'^{_BETWEEN}++|{_BETWEEN}++$')}, '')"
    documents = f"transform(split({cut}, {sql.text(_CUT)}), document -> {bare})"
    # Regular expressions would turn invalid UTF-8 into characters.
    is_plain = f"is_valid_utf8({text}) AND NOT {text} RLIKE {sql.text(f'[{_BACKSLASH}-{_CUT}]')}"
    return f"if({is_plain} AND {starts_another(text)}, {documents}, array({text}))"
