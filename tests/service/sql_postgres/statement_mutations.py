"""
Statements that nobody has thought of: those that tenants may write and those that they may not, taken apart and put
together anew. The same seed gives the same texts.

A text is a list of tokens. Mutations keep most of it, so that many results are still SQL: a word is replaced by one of
another statement, a name by a hostile one or by another spelling of itself, a value by an expression, an expression by
one of another statement, and the whole is wrapped in another statement.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from onceward._core.sql_lexer import Dialect, TokenKind, tokens_of

_NAMES = """
secret {other} {records} {own} onceward_records pg_catalog information_schema pg_temp public pg_class pg_authid
pg_roles pg_settings pg_stat_activity pg_sleep set_config current_setting pg_advisory_lock query_to_xml lo_import
pg_read_file dblink regclass regrole regproc xml role search_path current_user session_user tableoid ctid xmin own
numbers tables columns lastval currval nextval setval setseed txid_current pg_typeof has_table_privilege oid void
onceward ow_000000000000000000000000 id text a t
"""
NAMES = _NAMES.split()
_PIECES = """
{other}.secret
(SELECT text FROM {other}.secret)
pg_catalog.pg_class
(1::text).current_setting
set_config('role', 'none', false)
'{other}.secret'::regclass
nextval('{other}.numbers')
OPERATOR(pg_catalog.+)
OPERATOR({other}.+)
COLLATE "C"
COLLATE {other}."x"
::{other}.secret
::pg_catalog.text
::regrole
; SELECT 1
;
/* x */
/* /* x */ */
$$x$$
$a$ ' $a$
E'\\''
U&'\\0061'
B'1'
X'1f'
WITH x AS (DELETE FROM own RETURNING *)
WITH x AS MATERIALIZED (SELECT 1)
FOR UPDATE
FOR UPDATE OF own
INTO x
INTO TEMP x
INTO UNLOGGED x
TABLESPACE pg_default
WITH (fillfactor = 10)
USING heap
ONLY own
TABLE own
LATERAL (SELECT 1) AS l
ROWS FROM (generate_series(1, 2))
TABLESAMPLE system (1)
own.*
(own).*
(own.*)::text
(SELECT own FROM own LIMIT 1).id
own.pg_typeof
row_to_json(own)
ARRAY(SELECT 1)
current_user
CURRENT_SCHEMA
SESSION_USER
XMLELEMENT(NAME a)
EXTRACT(year FROM now())
CURRENT OF c
DEFAULT
NULL
*
$1
1 = ANY (SELECT 1)
GROUPING(id)
count(*) OVER ()
1 IS DOCUMENT
INHERITS ({other}.secret)
PARTITION OF {other}.secret DEFAULT
LIKE {other}.secret
REFERENCES {other}.secret
OWNED BY {other}.secret.text
OF {other}.secret
ON COMMIT DROP
SECURITY DEFINER
AS $$ SELECT 1 $$ LANGUAGE sql
"""
PIECES = [*_PIECES.strip().splitlines(), "-- x\n"]
_WRAPPINGS = """
EXPLAIN {}
EXPLAIN (ANALYZE) {}
EXPLAIN (SETTINGS) {}
SELECT * FROM ({}) AS x
WITH x AS ({}) SELECT * FROM x
CREATE TABLE made AS {}
CREATE VIEW made AS {}
CREATE MATERIALIZED VIEW made AS {}
CREATE TEMP VIEW made AS {}
INSERT INTO own {}
SELECT ({})
SELECT EXISTS ({})
{} UNION ALL {}
({})
PREPARE p AS {}
COPY ({}) TO STDOUT
DECLARE c CURSOR FOR {}
DO $$ BEGIN {}; END $$
SELECT 1; {}
{}; COMMIT
CREATE RULE r AS ON SELECT TO own DO {}
UPDATE own SET text = ({})
DELETE FROM own WHERE id IN ({})
MERGE INTO own USING ({}) AS x ON true WHEN MATCHED THEN DELETE
CREATE SCHEMA x {}
ALTER TABLE own ADD CHECK (({}) IS NULL)
SELECT ARRAY({})
VALUES (({}))
"""
WRAPPINGS = _WRAPPINGS.strip().splitlines()
_OPERATORS = "+-*/<>=~!@#%^&|?"


def mutations(seeds: Sequence[str], seed: int) -> Iterator[str]:
    """Texts without an end."""
    dice = random.Random(seed)
    taken_apart = [_words(one) for one in seeds]
    words = sorted({word for one in taken_apart for word in one})
    while True:
        text = list(dice.choice(taken_apart))
        for _ in range(dice.choice((1, 1, 2, 2, 3, 5))):
            text = _mutated(dice, text, taken_apart, words)
        joined = " ".join(text)
        while dice.random() < 0.25:
            joined = dice.choice(WRAPPINGS).replace("{}", joined)
        yield joined


def _mutated(dice: random.Random, text: list[str], others: Sequence[list[str]], words: Sequence[str]) -> list[str]:
    if not text:
        return list(dice.choice(others))
    at = dice.randrange(len(text))
    match dice.randrange(9):
        case 0:
            return [*text[:at], *text[at + 1 :]]
        case 1:
            return [*text[:at], text[at], *text[at:]]
        case 2:
            return [*text[:at], dice.choice(words), *text[at + 1 :]]
        case 3:
            return [*text[:at], dice.choice(words), *text[at:]]
        case 4:
            return [*text[:at], _spelled(dice, dice.choice(NAMES)), *text[at + 1 :]]
        case 5:
            return [*text[:at], dice.choice(PIECES), *text[at + dice.randrange(2) :]]
        case 6:
            return [*text[:at], _spelled(dice, text[at]), *text[at + 1 :]]
        case 7:
            prefix = dice.choice(("{other}", "pg_catalog", "pg_temp", "{records}", "{own}", "information_schema"))
            return [*text[:at], prefix, ".", *text[at:]]
        case _:
            return _spliced(dice, text, dice.choice(others))


def _spliced(dice: random.Random, text: list[str], other: list[str]) -> list[str]:
    """An expression in parentheses of one statement in the place of one of another."""
    here, there = _groups(text), _groups(other)
    if not here or not there:
        return [*text[: len(text) // 2], *other[len(other) // 2 :]]
    (first, last), (begin, end) = dice.choice(here), dice.choice(there)
    return [*text[:first], *other[begin:end], *text[last:]]


def _groups(text: Sequence[str]) -> list[tuple[int, int]]:
    found, opened = [], []
    for number, word in enumerate(text):
        if word == "(":
            opened.append(number)
        elif word == ")" and opened:
            found.append((opened.pop(), number + 1))
    return found


def _spelled(dice: random.Random, word: str) -> str:
    """A name in another spelling, which means the same to a parser or does not."""
    if not word.replace("_", "").replace("{", "").replace("}", "").isalnum():
        return word
    match dice.randrange(6):
        case 0:
            return word.upper() if "{" not in word else word
        case 1:
            return f'"{word}"'
        case 2 if "{" not in word:
            return 'U&"' + "".join(f"\\{ord(one):04x}" for one in word) + '"'
        case 3:
            return f'"{word}" /* x */'
        case 4:
            return f"( {word} )"
        case _:
            return word


def _words(sql: str) -> list[str]:
    """The words of a statement as they stand there; characters of one operator are one word."""
    found: list[str] = []
    end = -1
    for one in tokens_of(sql, Dialect.POSTGRES):
        text = sql[one.start : one.end]
        if one.kind is TokenKind.MARK and text in _OPERATORS and one.start == end and found[-1][-1] in _OPERATORS:
            found[-1] += text
        elif text:
            found.append(text)
        end = one.end
    return found
