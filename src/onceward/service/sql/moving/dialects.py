"""
Types and expressions between SQLite and PostgreSQL.

    SQLite, as declared                      PostgreSQL
    ---------------------------------------  ---------------------------------------------------
    ...INT...                                bigint
    BOOLEAN                                  boolean (0 and 1)
    VARCHAR(n), CHAR(n), NVARCHAR(n) ...     character varying(n)
    BLOB                                     bytea
    REAL, FLOAT, DOUBLE ...                  double precision
    NUMERIC(p, s), DECIMAL ...               numeric(p, s)
    "text uuid", "text numeric(10,2)" ...    what is named behind text: how such a type is kept in SQLite
    TEXT, DATETIME, JSON, none, others       text

SQLite keeps what PostgreSQL has and it has not as text, in PostgreSQL's own spelling. It takes a type with INT in its
name for one of integers, so that is spelled `in_t` there: "text in_terval".

An expression is moved only if every word of it means the same in both: comparisons, AND, OR, arithmetic without
division, and a few functions. LIKE is none of them (SQLite ignores capitals), and lower() is none (SQLite knows ASCII).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from typing import Final

from onceward._core.sql_lexer import Dialect, TokenKind, tokens_of
from onceward.service.sql.moving.moved_schema import POSTGRESQL, SQLITE
from onceward.service.sql.moving.moved_values import MovedValue

_VARCHAR_MAX: Final = 10_485_760
_ARGUMENTS = re.compile(r"\(\s*(\d{1,9})\s*(?:,\s*(\d{1,4})\s*)?\)")
_KEPT_AS_TEXT = re.compile(r"text ([a-z_][a-z0-9_]*(?: [a-z]+)*(?:\(\d+(?:,\d+)?\))?(?: [a-z]+)*(?:\[\])*)")
_BASE_WORDS = """
numeric uuid json jsonb date interval inet cidr macaddr macaddr8 money bit point line lseg box path polygon circle
tsvector tsquery jsonpath character name oid time timestamp smallint integer bigint real double text boolean bytea
int4range int8range numrange tsrange tstzrange daterange
int4multirange int8multirange nummultirange tsmultirange tstzmultirange datemultirange
"""
_BASES: Final = frozenset(_BASE_WORDS.split())
"""First words of the types that may stand behind `text`."""
INTEGERS: Final = frozenset(("smallint", "integer", "bigint"))
REALS: Final = frozenset(("real", "double precision"))
_PLAIN_POSTGRES = re.compile(r"[a-z_][a-z0-9_]*(?: [a-z]+)*(?:\(\d{1,9}(?:, ?\d{1,9})?\))?(?: [a-z]+)*(?:\[\])*")
_ALIASES: Final = {
    "int": "integer",
    "int2": "smallint",
    "int4": "integer",
    "int8": "bigint",
    "bool": "boolean",
    "float4": "real",
    "float8": "double precision",
    "float": "double precision",
    "double": "double precision",
    "varchar": "character varying",
    "decimal": "numeric",
    "timestamptz": "timestamp with time zone",
}
_LENGTHS = re.compile(r"character varying\((\d+)\)")
_PLAIN_TYPE = re.compile(r"[A-Za-z ]*(?:\(\d+(?:, ?\d+)?\))?")
_TEXT_CASTS = re.compile(r"('(?:[^']|'')*')::(?:text|character varying)\b")
_COLUMN_CASTS = re.compile(r"\(([a-z_][a-z0-9_]*)\)::text\b")
"""What PostgreSQL adds to texts, and to columns of texts with a length."""

_IN_EXPRESSIONS = "AND OR NOT IS NULL IN BETWEEN TRUE FALSE CASE WHEN THEN ELSE END"
_IN_QUERIES = """
SELECT FROM WHERE AS JOIN LEFT INNER OUTER CROSS ON GROUP BY ORDER HAVING ASC DESC LIMIT UNION ALL DISTINCT
"""
_WORDS: Final = frozenset(_IN_EXPRESSIONS.split())
_QUERY_WORDS: Final = _WORDS | frozenset(_IN_QUERIES.split())
_FUNCTIONS: Final = frozenset(("LENGTH", "ABS", "COALESCE", "NULLIF"))
_QUERY_FUNCTIONS: Final = _FUNCTIONS | {"COUNT", "MIN", "MAX"}
_MARKS: Final = frozenset("(),+-*=<>!")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_DEFAULT = re.compile(r"[+-]?\d+(?:\.\d+)?|'(?:[^']|'')*'|NULL|TRUE|FALSE", re.IGNORECASE)


def postgres_type(dialect: str, declared: str) -> str:
    """The type that a column gets in PostgreSQL."""
    if dialect == POSTGRESQL:
        return declared
    kept = _KEPT_AS_TEXT.fullmatch(declared.lower().replace("in_t", "int"))
    if kept is not None and re.split(r"[ (\[]", kept[1])[0] in _BASES:
        return kept[1]
    upper = declared.upper()
    given = _ARGUMENTS.search(upper)
    if "INT" in upper:
        return "bigint"
    if "BOOL" in upper:
        return "boolean"
    if "CHAR" in upper and given is not None and 0 < int(given[1]) <= _VARCHAR_MAX:
        return f"character varying({int(given[1])})"
    if any(word in upper for word in ("CHAR", "CLOB", "TEXT")):
        return "text"
    if "BLOB" in upper:
        return "bytea"
    if any(word in upper for word in ("REAL", "FLOA", "DOUB")):
        return "double precision"
    if "NUMERIC" in upper or "DECIMAL" in upper:
        digits = "" if given is None else f"({int(given[1])},{int(given[2] or 0)})"
        return f"numeric{digits}"
    return "text"


def known_type(text: str) -> str | None:
    """A type that somebody wrote, as PostgreSQL would; None if it is no plain type. It is put into statements."""
    if _PLAIN_POSTGRES.fullmatch(text) is None:
        return None
    base, mark, rest = text.partition("(")
    return _ALIASES.get(base, base) + mark + rest


def sqlite_type(dialect: str, type: str) -> str:
    """The type that a column is declared with in SQLite."""
    if dialect == SQLITE:
        return type
    if type in INTEGERS:
        return "INTEGER"
    if type in REALS:
        return "REAL"
    length = _LENGTHS.fullmatch(type)
    if length is not None:
        return f"VARCHAR({length[1]})"
    known = {"boolean": "BOOLEAN", "bytea": "BLOB", "text": "TEXT", "character varying": "TEXT"}
    return known.get(type) or f"text {type.replace('int', 'in_t')}"


def spelled_for_sqlite(type: str) -> str:
    """A declared type as it is written into a statement."""
    return type if _PLAIN_TYPE.fullmatch(type) else '"' + type.replace('"', '""') + '"'


def to_postgres_text(value: MovedValue) -> str | None:
    """A value as PostgreSQL reads it; whether it fits is seen when it comes back."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case bytes():
            return f"\\x{value.hex()}"
        case float():
            return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(repr(value), repr(value))
        case _:
            return str(value)


def from_postgres_text(text: str | None, type: str) -> MovedValue:
    """A value that PostgreSQL wrote."""
    if text is None:
        return None
    if type in INTEGERS:
        return int(text)
    if type in REALS:
        return float(text)
    if type == "boolean":
        return text == "true"
    return bytes.fromhex(text[2:]) if type == "bytea" else text


def in_postgres(value: MovedValue, type: str) -> MovedValue:
    """A value in the one form that it is compared in, for a column of that type in PostgreSQL."""
    if type == "boolean" and value in (0, 1) and isinstance(value, int):
        return bool(value)
    if type.startswith("numeric") and not type.endswith("[]") and isinstance(value, int | float | str):
        return _number(value)
    return value


def _number(value: float | str) -> str:
    """A number with all its digits, and without zeros at its end; a text that is none stays as it is."""
    try:
        number = Decimal(repr(value) if isinstance(value, float) else value)
    except InvalidOperation:
        return str(value)
    digits = format(number, "f")  # Exact: arithmetic would round it to the context's precision.
    return (digits.rstrip("0").rstrip(".") if "." in digits else digits) if number else "0"


def in_sqlite(value: MovedValue) -> MovedValue:
    """A value in the one form that it is compared in, for SQLite, where a boolean is 0 or 1."""
    return int(value) if isinstance(value, bool) else value


def default_in_both(text: str) -> str | None:
    """A default as both understand it, which is a literal; None if it is more than that."""
    plain = _TEXT_CASTS.sub(r"\1", text.strip())
    while plain.startswith("(") and plain.endswith(")"):
        plain = plain[1:-1].strip()
    return plain if _DEFAULT.fullmatch(plain) else None


def expression_in_both(text: str, types: Mapping[str, str]) -> str | None:
    """An expression over columns of these types (PostgreSQL's), if it means the same in both; otherwise None."""

    def without_cast(found: re.Match[str]) -> str:
        return found[1] if types.get(found[1], "").startswith("character varying") else found[0]

    plain = _COLUMN_CASTS.sub(without_cast, text)
    return _in_both(plain, {one.upper() for one in types}, _WORDS, _FUNCTIONS)


def query_in_both(text: str, names: Collection[str]) -> str | None:
    """A query over tables and columns of these names, if it means the same in both; otherwise None."""
    known = {one.upper() for one in names}
    words = [one.text for one in tokens_of(text, Dialect.POSTGRES) if one.kind is TokenKind.WORD]
    aliases = {two for one, two in pairwise(words) if one == "AS"}
    return _in_both(text.strip().rstrip(";"), known | aliases, _QUERY_WORDS, _QUERY_FUNCTIONS, marks=_MARKS | {"."})


def _in_both(
    text: str, names: set[str], words: frozenset[str], functions: frozenset[str], marks: frozenset[str] = _MARKS
) -> str | None:
    plain = _TEXT_CASTS.sub(r"\1", text)
    tokens = list(tokens_of(plain, Dialect.POSTGRES))
    for number, token in enumerate(tokens):
        called = number + 1 < len(tokens) and tokens[number + 1].text == "("
        word = token.text
        match token.kind:
            case TokenKind.WORD:
                agrees = word in (words | functions if called else words | names)
            case TokenKind.QUOTED:
                agrees = word == word.lower() and word[1:-1].upper() in names
            case TokenKind.STRING:
                agrees = word.startswith("'")
            case TokenKind.NUMBER:
                agrees = _NUMBER.fullmatch(word) is not None
            case TokenKind.MARK:
                agrees = word in marks
            case _:
                agrees = False
        if not agrees:
            return None
    return plain


def quoted(name: str) -> str:
    """A name as both read it, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'
