"""
Which statements a tenant may send to PostgreSQL: an allow-list over the tree that PostgreSQL's own parser makes.

Every node of the tree must be of a kind that is listed here, and every name in it one that is listed in `allowed_names`
or the tenant's own. What the list does not know is refused, so a new version of the grammar opens nothing.

This holds what grants cannot: that the text leaves the role it was given (SET ROLE, `set_config`), changes its limits,
or leaves something behind in a session that the next tenant gets. A function can be called in two spellings, and both
are looked at: `pg_sleep(5)` and `(5.0::float8).pg_sleep`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any, Final, NamedTuple, TypeAlias

from onceward._core.errors import StoreCorrupt
from onceward.protocol.errors import SqlError, SqlKind
from onceward.service.sql.postgres.allowed_names import FUNCTIONS, INFORMATION_SCHEMA, TYPES, VIEWS

Node: TypeAlias = dict[str, Any]

STATEMENTS: Final = {
    "SelectStmt": "SELECT",
    "InsertStmt": "INSERT",
    "UpdateStmt": "UPDATE",
    "DeleteStmt": "DELETE",
    "MergeStmt": "MERGE",
    "CreateStmt": "CREATE",
    "CreateTableAsStmt": "CREATE",
    "IndexStmt": "CREATE",
    "ViewStmt": "CREATE",
    "CreateSeqStmt": "CREATE",
    "CreateEnumStmt": "CREATE",
    "CreateDomainStmt": "CREATE",
    "CompositeTypeStmt": "CREATE",
    "AlterTableStmt": "ALTER",
    "AlterSeqStmt": "ALTER",
    "AlterEnumStmt": "ALTER",
    "RenameStmt": "ALTER",
    "CommentStmt": "COMMENT",
    "DropStmt": "DROP",
    "TruncateStmt": "TRUNCATE",
    "ExplainStmt": "EXPLAIN",
}
"""Statements, and their verbs."""
_WRITING: Final = frozenset(STATEMENTS) - {"SelectStmt", "ExplainStmt"} | {"LockingClause"}
_NODES = """
A_ArrayExpr A_Const A_Expr A_Indices A_Indirection A_Star Alias BitString BoolExpr Boolean BooleanTest CaseExpr CaseWhen
CoalesceExpr CollateClause ColumnDef ColumnRef CommonTableExpr Constraint CTECycleClause CTESearchClause DefElem Float
FuncCall GroupingFunc GroupingSet IndexElem InferClause Integer IntoClause JoinExpr JsonAggConstructor JsonArgument
JsonArrayAgg JsonArrayConstructor JsonArrayQueryConstructor JsonBehavior JsonFormat JsonFuncExpr JsonIsPredicate
JsonKeyValue JsonObjectAgg JsonObjectConstructor JsonOutput JsonParseExpr JsonScalarExpr JsonSerializeExpr
JsonValueExpr List LockingClause MergeWhenClause MinMaxExpr MultiAssignRef NamedArgExpr NullTest OnConflictClause
ParamRef PartitionBoundSpec PartitionCmd PartitionElem PartitionRangeDatum PartitionSpec RangeFunction RangeSubselect
RangeVar RawStmt ResTarget RowExpr SetToDefault SortBy SQLValueFunction String SubLink TableLikeClause TypeCast TypeName
WindowDef WithClause AlterTableCmd ReturningClause ReturningOption
"""
_EXPRESSIONS: Final = frozenset(_NODES.split())
_CLOCK_VALUES: Final = ("SVFOP_CURRENT_DATE", "SVFOP_CURRENT_TIME", "SVFOP_LOCALTIME")
"""What of CURRENT_DATE, CURRENT_USER and their like may be asked: the clock (also with a precision)."""
_ALTERED = """
AT_AddColumn AT_AddConstraint AT_AddIdentity AT_AlterColumnType AT_AlterConstraint AT_AttachPartition AT_ColumnDefault
AT_DetachPartition AT_DropColumn AT_DropConstraint AT_DropExpression AT_DropIdentity AT_DropNotNull AT_SetExpression
AT_SetIdentity AT_SetNotNull AT_ValidateConstraint
"""
_ALTERATIONS: Final = frozenset(_ALTERED.split())
_OBJECTS = "TABLE INDEX VIEW MATVIEW SEQUENCE TYPE DOMAIN"
_DROPPED: Final = frozenset(f"OBJECT_{one}" for one in _OBJECTS.split())
_RENAMED: Final = _DROPPED | {"OBJECT_COLUMN", "OBJECT_TABCONSTRAINT", "OBJECT_ATTRIBUTE", "OBJECT_DOMCONSTRAINT"}
_COMMENTED: Final = _DROPPED | {"OBJECT_COLUMN", "OBJECT_TABCONSTRAINT"}
_INDEX_METHODS: Final = frozenset(("btree", "hash", "gin", "gist", "spgist", "brin"))
_WITH_OPTIONS: Final = frozenset(("AlterSeqStmt", "Constraint", "CreateSeqStmt", "ExplainStmt"))
"""Statements and parts whose options are looked at one by one. Anywhere else there are none."""
_EXPLAINED: Final = frozenset(("analyze", "costs", "timing", "summary", "format", "buffers"))
_SEQUENCES: Final = frozenset(
    ("as", "increment", "minvalue", "maxvalue", "start", "restart", "cache", "cycle", "owned_by")
)
_FORBIDDEN_FIELDS: Final = frozenset(
    ("tableSpace", "tablespacename", "indexspace", "tableSpaceName", "accessMethod", "fdwoptions", "intoClause")
)
"""Of any node: where something is stored and how, which is the operator's choice."""
_OWN: Final = ("onceward", "pg_")
"""How names begin that are not the tenant's."""


class CatalogNames(NamedTuple):
    """Names in a server's own catalog: a tenant's things have other names, or are hidden behind these."""

    functions: frozenset[str]
    types: frozenset[str]


CATALOG_QUERY: Final = """
SELECT 'function', proname::text FROM pg_catalog.pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace
UNION SELECT 'type', typname::text FROM pg_catalog.pg_type WHERE typnamespace = 'pg_catalog'::regnamespace
"""
"""What is a function or a type, and its name, from a server."""


def catalog_names(rows: Iterable[tuple[Any, ...]]) -> CatalogNames:
    """The names in the rows of `CATALOG_QUERY`. A server without the usual ones was not understood, and is refused."""
    functions: set[str] = set()
    types: set[str] = set()
    for kind, name in rows:
        (functions if kind == "function" else types).add(str(name))
    if not (functions >= FUNCTIONS_EVERYWHERE and types >= TYPES_EVERYWHERE):
        raise StoreCorrupt("the server's catalog does not list what every PostgreSQL has; nothing can be checked by it")
    return CatalogNames(frozenset(functions), frozenset(types))


FUNCTIONS_EVERYWHERE: Final = frozenset(
    ("current_setting", "pg_advisory_lock", "pg_read_file", "pg_sleep", "set_config")
)
TYPES_EVERYWHERE: Final = frozenset(("int4", "regclass", "regrole", "text"))


class InsertTarget(NamedTuple):
    """Where an INSERT writes to."""

    table: str
    columns: tuple[str, ...]


class CheckedStatement(NamedTuple):
    """A statement that may be sent."""

    verb: str
    """Its first word in capitals; that of the statement itself behind WITH."""
    reads: bool
    """Whether it only reads."""
    writes: int | None = None
    """How many rows it writes and that it returns none, where that is certain: an INSERT of plain values."""
    target: InsertTarget | None = None
    """Of such an INSERT that may be prepared: it means the same for as long as its columns have the same types."""


class StatementChecker:
    """The allow-list, for one server."""

    def __init__(self, catalog: CatalogNames) -> None:
        self._functions = catalog.functions - FUNCTIONS
        """Functions that are not to be called."""
        self._types = catalog.types - TYPES
        self._parser: Any = import_module("pgparse")

    def check(self, sql: str) -> CheckedStatement:
        """Say what a statement is, or refuse it: `SqlError`."""
        if "\0" in sql:
            raise SqlError(SqlKind.SYNTAX, "the statement has a NUL character in it")
        try:
            tree = self._parser.parse(sql)
        except self._parser.PGQueryError as error:
            raise SqlError(SqlKind.SYNTAX, str(error)[:400]) from None
        except (RecursionError, UnicodeEncodeError):
            raise SqlError(SqlKind.TOO_LARGE, "the statement is nested too deeply", hint="split it up") from None
        if len(tree) != 1:
            raise SqlError(
                SqlKind.SYNTAX if not tree else SqlKind.DENIED,
                f"the text has {len(tree)} statements, and only one can be run",
                hint="send one statement, or a batch",
            )
        [(kind, root)] = tree[0]["stmt"].items()
        if kind not in STATEMENTS:
            raise _denied(f"this kind of statement ({kind.removesuffix('Stmt')})", _HINTS.get(kind))
        reads = True
        for name, node in _nodes(tree[0]["stmt"]):
            if name in STATEMENTS or name in _EXPRESSIONS:
                reads = reads and name not in _WRITING and not (name == "FuncCall" and _moves_sequence(node))
            elif name:
                raise _denied(f"{name.removesuffix('Stmt')}")
            self._check_node(name, node)
        if kind != "InsertStmt":
            return CheckedStatement(STATEMENTS[kind], reads)
        writes = _rows_inserted(root)
        return CheckedStatement(STATEMENTS[kind], reads, writes, None if writes is None else _insert_target(root))

    def _check_node(self, name: str, node: Node) -> None:
        """One node; without a name for those that stand in a field whose type is always the same."""
        forbidden = _FORBIDDEN_FIELDS.intersection(node)
        if forbidden and not (name == "IndexStmt" and forbidden == {"accessMethod"}):
            raise _denied(f"{sorted(forbidden)[0]}")
        if isinstance(node.get("options"), list) and name not in _WITH_OPTIONS:
            raise _denied("an option of storage (WITH ...)")
        if "relname" in node:
            _check_relation(node)
        if "names" in node and "typemod" in node:
            self._check_type(_strings(node["names"]))
        if isinstance(node.get("typeName"), list):
            _check_name(_strings(node["typeName"]))
        rule = _RULES.get(name)
        if rule is not None:
            rule(self, node)

    def check_function(self, node: Node) -> None:
        """A call of a function."""
        names = _strings(node["funcname"])
        if len(names) > 1 and names[0] != "pg_catalog":
            raise _denied(f"the function {'.'.join(names)[:80]}")
        if names[-1] not in FUNCTIONS:
            raise _denied(f"the function {names[-1][:60]}", _HINTS.get(names[-1]))

    def check_attribute(self, node: Node) -> None:
        """`(value).name`, which may be a column, a function or a type."""
        for name in _strings(node.get("indirection", ())):
            if name in self._functions or name in self._types or name.startswith(_OWN):
                raise _denied(f"({name[:60]}) behind a value")

    def check_column(self, node: Node) -> None:
        """`a.b.c`: a column of a table, or a function of one."""
        names = _strings(node["fields"])
        if len(names) > 2:
            raise _denied("a column with its schema", "name the column as table.column")
        if len(names) == 2 and (names[1] in _OF_ROWS or names[1].startswith("pg_")):
            raise _denied(f"the function {names[1][:60]}", "a column of that name is found without its table")

    def _check_type(self, names: list[str]) -> None:
        if len(names) > 2 or (len(names) == 2 and names[0] != "pg_catalog"):
            raise _denied(f"the type {'.'.join(names)[:80]}")
        name = names[-1] if names else ""
        if name not in TYPES and (name in self._types or name.startswith((*_OWN, "_")) or len(names) == 2):
            raise _denied(f"the type {name[:60]}")


_OF_ROWS: Final = frozenset(
    ("any_out", "anyelement_out", "anynonarray_out", "anycompatible_out", "anycompatiblenonarray_out", "hash_record")
) | {"record_out", "record_send"}
"""Functions of a whole row, besides those in pg_, that `row.function` could call."""
_NO_CODE: Final = (
    "functions and triggers would run as another user; put the rule into a constraint or into your program"
)
_HINTS: Final = {
    "TransactionStmt": "every request is a transaction; send what belongs together as one batch",
    "VariableSetStmt": "settings belong to the service",
    "CreateFunctionStmt": _NO_CODE,
    "CreateTrigStmt": _NO_CODE,
    "DoStmt": "send the statements themselves, as a batch",
    "CopyStmt": "send rows as INSERT with parameters",
    "digest": "it is pgcrypto's; PostgreSQL's own is sha256(convert_to(text, 'UTF8'))",
    "pg_sleep": "wait in the program",
}


_INSERT_FIELDS: Final = frozenset(("relation", "cols", "selectStmt", "override"))
_VALUES_FIELDS: Final = frozenset(("valuesLists", "limitOption", "op"))
_PLAIN_VALUES: Final = frozenset(("", "A_Const", "List", "ParamRef", "SetToDefault", "String", "TypeCast", "TypeName"))

_UNTYPED_VALUES: Final = frozenset(("", "A_Const", "List", "ParamRef", "SetToDefault"))


def _rows_inserted(node: Node) -> int | None:
    """How many rows an INSERT writes, if that does not depend on anything: no RETURNING, no conflict, no function."""
    source = node.get("selectStmt", {}).get("SelectStmt", {})
    if not _INSERT_FIELDS.issuperset(node) or not _VALUES_FIELDS.issuperset(source) or "valuesLists" not in source:
        return None
    if not all(name in _PLAIN_VALUES for name, _ in _nodes(source)):
        return None  # A function may return a row, or ten.
    return len(source["valuesLists"])


def _insert_target(node: Node) -> InsertTarget | None:
    """Where an INSERT of plain values writes to, if it may be prepared and used again."""
    columns = [one["ResTarget"] for one in node.get("cols", ())]
    if not columns or "schemaname" in node["relation"]:
        return None
    if not all(one.keys() <= {"name", "location"} for one in columns):
        return None  # A part of a column, such as an array's.
    for name, value in _nodes(node["selectStmt"]["SelectStmt"]["valuesLists"]):
        if name not in _UNTYPED_VALUES or "sval" in value:
            return None  # A type of its own; or a text, which may say 'now' and is read when it is prepared.
    return InsertTarget(node["relation"]["relname"], tuple(one["name"] for one in columns))


def _moves_sequence(node: Node) -> bool:
    return _strings(node["funcname"])[-1] in ("nextval", "setval")


def _denied(what: str, hint: str | None = None) -> SqlError:
    return SqlError(SqlKind.DENIED, f"{what} is not allowed here", hint=hint)


def _nodes(root: Any) -> Iterator[tuple[str, Node]]:
    """Every object of the tree: with its kind, or without one where the field says what it is."""
    waiting: list[tuple[str, Any]] = [("", root)]
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, list):
            waiting.extend(("", one) for one in value)
            continue
        if not isinstance(value, dict):
            continue
        [*tags] = (one for one in value if one[:1].isupper())
        if not tags:
            yield name, value
        for key, inner in value.items():
            if isinstance(inner, dict | list):
                waiting.append((key if key in tags else "", inner))


def _strings(items: Any) -> list[str]:
    return [one["String"].get("sval", "") for one in items if "String" in one]


def _check_relation(node: Node) -> None:
    schema, name = node.get("schemaname"), node["relname"]
    if node.get("catalogname"):
        raise _denied("another database")
    if schema == INFORMATION_SCHEMA and name in VIEWS:
        return
    if schema:
        raise _denied(f"the schema {schema[:60]}", "a database is one schema; leave its name out")
    if name.startswith(_OWN):
        raise _denied(f"{name[:60]}", "names that begin like this belong to the server and the service")
    if node.get("relpersistence", "p") != "p":
        raise _denied(
            "a temporary or unlogged table", "sessions are shared, and unlogged rows do not survive a failover"
        )


def _check_name(names: list[str]) -> None:
    """The name of something that is made, changed or dropped."""
    if len(names) != 1:
        raise _denied(f"a name with a schema ({'.'.join(names)[:80]})", "leave the schema out")
    if names[0].startswith(_OWN):
        raise _denied(f"{names[0][:60]}", "names that begin like this belong to the server and the service")


def _check_options(node: Node, allowed: frozenset[str], what: str) -> None:
    for one in node.get("options", ()):
        option = one["DefElem"]
        if option["defname"] not in allowed:
            raise _denied(f"{what} with {option['defname'][:40]}")
        if option["defname"] == "owned_by" and len(_strings(option["arg"]["List"]["items"])) > 2:
            raise _denied("a column with its schema")


def _operator(_checker: StatementChecker, node: Node) -> None:
    names = _strings(node.get("name", ()))
    if len(names) > 1 and names[0] != "pg_catalog":
        raise _denied("an operator of a schema")


def _clock_value(_checker: StatementChecker, node: Node) -> None:
    if not node.get("op", "").startswith((*_CLOCK_VALUES, "SVFOP_LOCALTIMESTAMP", "SVFOP_CURRENT_TIMESTAMP")):
        raise _denied("the name of the user, the schema or the database")


def _alter_command(_checker: StatementChecker, node: Node) -> None:
    if node.get("subtype") not in _ALTERATIONS:
        raise _denied(f"ALTER ({str(node.get('subtype')).removeprefix('AT_')})")


def _drop(_checker: StatementChecker, node: Node) -> None:
    if node.get("removeType") not in _DROPPED or node.get("concurrent"):
        raise _denied(f"DROP {str(node.get('removeType')).removeprefix('OBJECT_')}")
    for one in node.get("objects", ()):
        _check_object(one)


def _check_object(one: Node) -> None:
    if "List" in one:
        _check_name(_strings(one["List"]["items"]))
    elif "TypeName" in one:
        _check_name(_strings(one["TypeName"]["names"]))


def _rename(_checker: StatementChecker, node: Node) -> None:
    if node.get("renameType") not in _RENAMED:
        raise _denied(f"RENAME {str(node.get('renameType')).removeprefix('OBJECT_')}")
    _check_name([node.get("newname", "")])
    if "object" in node:
        _check_object(node["object"])


def _comment(_checker: StatementChecker, node: Node) -> None:
    if node.get("objtype") not in _COMMENTED:
        raise _denied(f"COMMENT ON {str(node.get('objtype')).removeprefix('OBJECT_')}")
    names = _strings(node["object"].get("List", {}).get("items", ()))
    if len(names) > (2 if node["objtype"] in ("OBJECT_COLUMN", "OBJECT_TABCONSTRAINT") else 1):
        raise _denied("a name with a schema", "leave the schema out")
    if "TypeName" in node["object"]:
        _check_object(node["object"])


def _index(_checker: StatementChecker, node: Node) -> None:
    if node.get("accessMethod", "btree") not in _INDEX_METHODS:
        raise _denied("this kind of index")
    if node.get("concurrent"):
        raise _denied("CREATE INDEX CONCURRENTLY", "every request is a transaction; leave CONCURRENTLY out")


def _collation(_checker: StatementChecker, node: Node) -> None:
    names = _strings(node.get("collname", ()))
    if len(names) > 1 and names[0] != "pg_catalog":
        raise _denied("a collation of a schema")


def _names_of_class(_checker: StatementChecker, node: Node) -> None:
    """An operator class or a collation of an index or a partition."""
    for field in ("opclass", "collation"):
        names = _strings(node.get(field, ()))
        if len(names) > 1 and names[0] != "pg_catalog":
            raise _denied(f"{field} of a schema")
    if node.get("opclassopts"):
        raise _denied("options of an operator class")


def _explain(_checker: StatementChecker, node: Node) -> None:
    _check_options(node, _EXPLAINED, "EXPLAIN")


def _sequence(_checker: StatementChecker, node: Node) -> None:
    _check_options(node, _SEQUENCES, "a sequence")


def _constraint(_checker: StatementChecker, node: Node) -> None:
    if node.get("access_method", "btree") not in _INDEX_METHODS:
        raise _denied("this kind of index")
    if node.get("contype") != "CONSTR_IDENTITY" and node.get("options"):
        raise _denied("an option of storage (WITH ...)")
    if node.get("contype") == "CONSTR_IDENTITY":
        _check_options(node, _SEQUENCES, "an identity column")
    for one in node.get("exclusions", ()):
        for operator in one["List"]["items"]:
            if "List" in operator and len(_strings(operator["List"]["items"])) > 1:
                raise _denied("an operator of a schema")


def _create_as(_checker: StatementChecker, node: Node) -> None:
    if node.get("objtype") not in ("OBJECT_TABLE", "OBJECT_MATVIEW"):
        raise _denied("this kind of CREATE ... AS")


Rule: TypeAlias = Callable[[StatementChecker, Node], None]

_RULES: Final[dict[str, Rule]] = {
    "A_Expr": _operator,
    "A_Indirection": StatementChecker.check_attribute,
    "AlterSeqStmt": _sequence,
    "AlterTableCmd": _alter_command,
    "CollateClause": _collation,
    "ColumnRef": StatementChecker.check_column,
    "CommentStmt": _comment,
    "Constraint": _constraint,
    "CreateSeqStmt": _sequence,
    "CreateTableAsStmt": _create_as,
    "DropStmt": _drop,
    "ExplainStmt": _explain,
    "FuncCall": StatementChecker.check_function,
    "IndexElem": _names_of_class,
    "IndexStmt": _index,
    "PartitionElem": _names_of_class,
    "RenameStmt": _rename,
    "SQLValueFunction": _clock_value,
    "SubLink": _operator,
}
"""What else is asked of a node of some kinds."""
