"""
Statements from a grammar of our own: whole and mostly of the right types, with something hostile in every few of them.

A production is a line; `<name>` stands for any line of that name. Beyond a depth only first lines are taken.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

_GRAMMAR = """
statement:
    <query>
    EXPLAIN <query>
    EXPLAIN (ANALYZE, FORMAT JSON) <change>
    <change>
    <definition>
    WITH <name> AS (<query>) <query>
    WITH <name> AS (<change> RETURNING *) SELECT * FROM <name>
change:
    INSERT INTO own (id, text) VALUES (<int> + 1000, <text>) ON CONFLICT (id) DO NOTHING
    INSERT INTO own (id, text) <rows> ON CONFLICT (id) DO UPDATE SET text = excluded.text
    UPDATE own SET text = <text> WHERE <bool>
    UPDATE <relation> SET text = <text>
    UPDATE own SET (id, text) = (SELECT <int>, <text>) WHERE <bool> AND false
    DELETE FROM own WHERE <bool>
    DELETE FROM own USING <source> WHERE <bool>
    MERGE INTO own USING (<rows>) AS x (i, s) ON own.id = x.i WHEN MATCHED THEN UPDATE SET text = x.s
    TRUNCATE own
    INSERT INTO <relation> SELECT <text>
definition:
    CREATE TABLE made (id int PRIMARY KEY DEFAULT <int>, s <type> CHECK (<bool>))
    CREATE TABLE made AS <query>
    CREATE VIEW made AS <query>
    CREATE MATERIALIZED VIEW made AS <query>
    CREATE TABLE made (LIKE <relation>)
    CREATE TABLE made (s <type>) INHERITS (<relation>)
    CREATE TABLE made (id int) PARTITION BY RANGE (id)
    CREATE TABLE made (s text REFERENCES <relation>)
    CREATE INDEX made ON own ((<text>))
    CREATE INDEX made ON <relation> (text)
    CREATE INDEX ON own (lower(text) text_pattern_ops) WHERE <bool>
    CREATE SEQUENCE made START <number> OWNED BY <relation>.text
    CREATE TYPE made AS ENUM ('a', 'b')
    CREATE TYPE made AS (a <type>, b <type>)
    CREATE DOMAIN made AS <type> CHECK (value IS NOT NULL)
    ALTER TABLE own ADD COLUMN more <type> DEFAULT <text>
    ALTER TABLE own ALTER COLUMN text TYPE <type> USING <text>
    ALTER TABLE own ADD CHECK (<bool> OR true)
    ALTER TABLE <relation> ADD COLUMN more int
    ALTER TABLE own RENAME TO <name>
    ALTER TABLE own RENAME COLUMN text TO <name>
    ALTER TABLE t ADD PRIMARY KEY (id)
    COMMENT ON TABLE <relation> IS 'x'
    COMMENT ON COLUMN own.id IS 'x'
    DROP TABLE IF EXISTS <relation> CASCADE
    DROP SEQUENCE s
    DROP VIEW IF EXISTS <relation>
query:
    SELECT <int> AS i, <text> AS s FROM <source> WHERE <bool>
    SELECT <text> FROM <source>
    SELECT <hostile> FROM <source>
    SELECT own.*, <int> FROM <source>, own ORDER BY <number> LIMIT 3
    SELECT count(*), max(<text>) FILTER (WHERE <bool>) FROM <source> GROUP BY GROUPING SETS ((), (id)) HAVING <bool>
    SELECT row_number() OVER (ORDER BY id), <text> FROM own FOR UPDATE OF own SKIP LOCKED
    SELECT DISTINCT ON (id) <text> FROM own
    <rows>
    TABLE <relation>
    (<rows>) UNION ALL (<rows>)
    WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT n, <text> FROM r, own
rows:
    SELECT <int>, <text>
    VALUES (<int>, <text>), (2, 'b')
    SELECT id, text FROM own WHERE <bool>
source:
    own
    own AS x (id, text)
    (SELECT <int> AS id, <text> AS text) AS own
    own JOIN t USING (id)
    own LEFT JOIN LATERAL (SELECT <text> AS u) AS l ON <bool>
    own, generate_series(1, 3) AS g
    own, ROWS FROM (generate_series(1, 2), unnest(ARRAY['a', 'b'])) AS f (m, n)
    own, jsonb_each('{"a": 1}'::jsonb) AS j
    own, jsonb_to_record('{"a": 1}'::jsonb) AS j (a <type>)
    own TABLESAMPLE bernoulli (50)
    <relation> AS own
    own, <relation> AS o
relation:
    own
    t
    ONLY own
    {other}.secret
    "{other}"."secret"
    {records}.onceward_records
    {own}.own
    onceward_databases
    pg_catalog.pg_class
    pg_roles
    pg_temp.own
    information_schema.tables
    information_schema.columns
    information_schema.schemata
    U&"\\0070g_authid"
    "SECRET"
int:
    1
    id
    <number>
    length(<text>)
    (<int> + <int>)
    abs(<int>)
    coalesce(<int>, 0)
    (SELECT count(*)::int FROM <source>)
    CASE WHEN <bool> THEN <int> ELSE 0 END
    extract(year FROM now())::int
    (row(1, 2)).f1
    (ARRAY[1, 2])[1]
    cast(<number> AS pg_catalog.int4)
    sum(<number>) OVER ()
    nextval('s')
    nextval('{other}.numbers')
    cardinality(ARRAY(SELECT <int>))
    pg_catalog.abs(<int>)
    <hostile>
text:
    'x'
    text
    upper(<text>)
    (<text> || <text>)
    <int>::text
    concat(<text>, <int>)
    format('%s', <text>)
    string_agg(<text>, ',') OVER ()
    (SELECT text FROM <source> LIMIT 1)
    to_char(now(), 'YYYY')
    regexp_replace(<text>, 'a', 'b')
    own.text
    (own).text
    row_to_json(own)::text
    own::text
    (own.*)::text
    (jsonb_build_object('a', <int>) ->> 'a')
    pg_typeof(<int>)::text
    <text> COLLATE "C"
    $a$x$a$
    E'\\\\x41'
    md5(<text>)
    json_object('a': <int>)::text
    <hostile>::text
    (<hostile>)::<type>
bool:
    true
    <int> > 0
    <text> LIKE '%'
    <int> IN (SELECT id FROM own)
    EXISTS (<query>)
    <bool> AND <bool>
    NOT <bool>
    <text> IS NOT NULL
    <int> = ANY (ARRAY[1, <int>])
    <int> OPERATOR(pg_catalog.=) <int>
    <int> OPERATOR({other}.=) <int>
    (<text>) ~ 'a'
    <text> IS DISTINCT FROM <text>
    <hostile> IS NULL
type:
    text
    int
    numeric(10, 2)
    jsonb
    text[]
    own
    made
    {other}.secret
    pg_catalog.text
    regclass
    regrole
    pg_class
    xml
    oid
    "char"
    _text
number:
    1
    2
    42
    1.5
name:
    x
    "made"
    onceward_x
    pg_x
    own
    "{other}"
hostile:
    NULL
    current_user
    current_schema
    session_user
    pg_sleep(0)
    set_config('role', 'none', false)
    current_setting('role')
    (SELECT text FROM {other}.secret)
    ('role'::text).current_setting
    (own).pg_sleep
    own.pg_typeof
    own.record_out
    (own).tableoid
    own.tableoid
    own.xmin
    '{other}.secret'::regclass
    to_regclass('{other}.secret')
    lastval()
    currval('s')
    setval('{other}.numbers', 5)
    pg_advisory_lock(1)
    txid_current()
    query_to_xml('SELECT 1', true, true, '')
    xmlelement(NAME a)
    has_table_privilege('own', 'SELECT')
    pg_catalog.pg_backend_pid()
    {other}.f(1)
    inet_server_addr()
    version()
    (1).int4
    ('x'::text).length
    (own).id.x
    (SELECT own FROM own LIMIT 1).text
    GROUPING(id)
    $1
    :name
    ?
    ROW(own.*)
    CURRENT_TIMESTAMP
    localtime(2)
"""
_REFERENCE = re.compile(r"<(\w+)>")


def _read(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text.strip().splitlines():
        if line.startswith(" "):
            found[list(found)[-1]].append(line.strip())
        else:
            found[line.removesuffix(":")] = []
    return found


GRAMMAR = _read(_GRAMMAR)
DEPTH = 5


def statements(seed: int) -> Iterator[str]:
    """Texts without an end; the same for the same seed."""
    dice = random.Random(seed)
    while True:
        yield _expanded(dice, "statement", 0)


def _expanded(dice: random.Random, name: str, depth: int) -> str:
    lines = GRAMMAR[name]
    # The first lines are harmless: they are taken often, so that most of a statement means something.
    line = lines[0] if depth > DEPTH else dice.choice(lines if dice.random() < 0.5 else lines[: 1 + len(lines) // 3])
    return _REFERENCE.sub(lambda found: _expanded(dice, found[1], depth + 1), line)
