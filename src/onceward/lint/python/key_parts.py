"""
What a key's expression is made of, as far as the file shows it: each ingredient that cannot be in a key, with its rule.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from onceward._core.key_ingredients import OF_THIS_PROCESS, PERSONAL, TIME_OR_ATTEMPT, words_of
from onceward.lint.python.key_places import is_key_name, is_under_missing_key
from onceward.lint.python.names import PythonFile, walk_here, word_set
from onceward.lint.python.retry_places import retry_around
from onceward.lint.python.scopes import FunctionNode

PARTS_MAX: Final = 400
"""Of one key's expression, the names behind it included: more is not looked at, so that no file takes long."""
_CLOCKS: Final = re.compile(
    r"(?:time\.(?:time|time_ns|monotonic|monotonic_ns|perf_counter|perf_counter_ns|ctime|asctime|gmtime|localtime)"
    r"|(?:datetime\.)?(?:datetime|date)\.(?:now|utcnow|today)|datetime\.(?:datetime|date)\.(?:now|utcnow|today)"
    r"|django\.utils\.timezone\.(?:now|localtime)|pendulum\.(?:now|today)|arrow\.(?:now|utcnow|get)"
    r"|(?:pandas|pd)\.Timestamp\.(?:now|today|utcnow))\(\)"
)
_AFRESH: Final = re.compile(
    r"(?:uuid\.uuid[1467]|random\.\w+|secrets\.\w+|os\.urandom|os\.getrandom|numpy\.random\.\w+(?:\.\w+)*"
    r"|ulid\.(?:new|ULID|create)|ulid\.ULID\(\)|nanoid\.generate|shortuuid\.uuid|shortuuid\.random|ksuid\.\w+"
    r"|xid\.XID|bson\.ObjectId|bson\.objectid\.ObjectId|uuid_utils\.uuid[1467]|uuid6\.uuid[67]"
    r"|onceward\.mint|onceward\.keys\.mint|(?:random\.Random\(\)|random\.SystemRandom\(\))\.\w+)\(\)"
)
_PROCESS: Final = re.compile(
    r"(?:id|hash|os\.getpid|os\.getppid|threading\.get_ident|threading\.get_native_id|threading\.current_thread"
    r"|socket\.gethostname|platform\.node|asyncio\.current_task|multiprocessing\.current_process)\(\)"
)
_HASHES: Final = re.compile(
    r"(?:hashlib\.\w+|hmac\.\w+|.*(?:hash|digest|sha|derive|tokeni[sz]e|pseudonym)\w*)(?:\(\))?", re.I
)
_TEXT_METHODS: Final = frozenset(
    {"format", "join", "encode", "hex", "hexdigest", "digest", "strip", "lower", "upper", "isoformat"}
)
_TEXT_CALLS: Final = frozenset(
    {"str", "repr", "format", "int", "bytes", "hex", "json.dumps", "tuple", "list", "sorted", "round"}
)
_TIME: Final = TIME_OR_ATTEMPT & word_set("timestamp now utcnow today current_time")
ATTEMPT_NAMES: Final = frozenset(name for name in TIME_OR_ATTEMPT if name.startswith(("attempt", "retr", "tr")))
"""What counts attempts, among the names that `key_ingredients.py` knows."""


@dataclass(frozen=True, slots=True)
class Part:
    """One ingredient of a key that is judged: its node, and why."""

    code: str
    node: ast.AST
    what: str


def key_parts(file: PythonFile, value: ast.expr) -> Iterator[Part]:
    """The ingredients of a key's expression that are judged, with the names behind it followed."""
    todo: list[tuple[ast.expr, bool]] = [(value, False)]
    seen: set[int] = set()
    while todo and len(seen) < PARTS_MAX:
        node, is_hashed = todo.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        match node:
            case ast.Call():
                part = _of_call(file, node) or _of_local_call(file, node)
                if part is not None:
                    yield part
                else:
                    todo += _inside_call(file, node, is_hashed)
            case ast.Name() | ast.Attribute():
                values = file.values_of(node)
                if values and not (isinstance(node, ast.Attribute) and len(values) > 1):
                    todo += [(one, is_hashed) for one in values if not _is_fallback(file, node, one)]
                elif part := _of_name(file, node, is_hashed):
                    yield part
                elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Call):
                    # `uuid.uuid4().hex`, `datetime.now().timestamp`: what it is an attribute of.
                    todo.append((node.value, is_hashed))
            case ast.JoinedStr() | ast.FormattedValue() | ast.BinOp() | ast.BoolOp() | ast.Tuple() | ast.List():
                todo += [(one, is_hashed) for one in _operands(node)]
            case ast.IfExp():
                todo += [(node.body, is_hashed), (node.orelse, is_hashed)]
            case ast.Subscript():
                if isinstance(node.value, ast.Call | ast.Name):
                    todo.append((node.value, is_hashed))
            case ast.Await() | ast.NamedExpr():
                todo.append((node.value, is_hashed))


def _is_fallback(file: PythonFile, name: ast.expr, value: ast.expr) -> bool:
    """Whether a value is only for callers who bring no key; a name that means a key is judged where it is made."""
    if is_key_name(name.id if isinstance(name, ast.Name) else getattr(name, "attr", "")):
        return True
    if isinstance(value, ast.BoolOp) and isinstance(value.op, ast.Or):
        return True  # `given or str(uuid4())`
    return file.is_parameter(name) and (isinstance(value, ast.IfExp) or is_under_missing_key(file, value))


def _operands(node: ast.expr) -> list[ast.expr]:
    return [one for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr)]


def _of_call(file: PythonFile, call: ast.Call) -> Part | None:
    name = file.dotted(call)
    if _CLOCKS.fullmatch(name):
        return Part("OW101", call, name)
    if _AFRESH.fullmatch(name) and not _is_seeded(name, call):
        return Part("OW102", call, name)
    if _PROCESS.fullmatch(name):
        return Part("OW105", call, name)
    return None


def _of_local_call(file: PythonFile, call: ast.Call) -> Part | None:
    """A function of this file that returns something made afresh: it is judged where it is called."""
    function = file.function_named(call.func)
    if function is None or isinstance(function, ast.Lambda):
        return None
    part = file.remembered("returned", function, lambda: _returned(file, function))
    return None if part is None else Part(part.code, call, part.what)


def _returned(file: PythonFile, function: FunctionNode) -> Part | None:
    for one in walk_here(function):
        value = one.value if isinstance(one, ast.Return) else None
        wrappers = (ast.Call, ast.Attribute, ast.JoinedStr, ast.FormattedValue)
        for inner in ast.walk(value) if isinstance(value, wrappers) else ():
            part = _of_call(file, inner) if isinstance(inner, ast.Call) else None
            if part is not None:
                return part
    return None


def _is_seeded(name: str, call: ast.Call) -> bool:
    return name in ("random.Random()", "bson.ObjectId()", "bson.objectid.ObjectId()", "ulid.ULID()") and bool(call.args)


def _inside_call(file: PythonFile, call: ast.Call, is_hashed: bool) -> list[tuple[ast.expr, bool]]:
    name = file.dotted(call.func)
    arguments = [*call.args, *(one.value for one in call.keywords)]
    if isinstance(call.func, ast.Attribute) and (call.func.attr in _TEXT_METHODS or not arguments):
        # `"{}:{}".format(...)`, `sha256(...).hexdigest()`, `datetime.now().isoformat()`, `time.time().hex()`.
        return [(one, is_hashed or bool(_HASHES.fullmatch(name))) for one in (*arguments, call.func.value)]
    if name in _TEXT_CALLS:
        return [(one, is_hashed) for one in arguments]
    if name.startswith(("uuid.uuid5", "uuid.uuid3", "uuid.UUID", "hashlib.", "hmac.")) or _HASHES.fullmatch(name):
        return [(one, True) for one in arguments]
    if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Call):
        return [(call.func.value, is_hashed)]  # `datetime.now().strftime(...)`: what it is a method of.
    # A function that is not known: what it makes of its arguments is not shown, but a clock or dice among them are.
    return [(one, True) for one in arguments if isinstance(one, ast.Call) and _of_call(file, one)]


def _of_name(file: PythonFile, node: ast.Name | ast.Attribute, is_hashed: bool) -> Part | None:
    name = words_of(node.id if isinstance(node, ast.Name) else node.attr)
    if name in ATTEMPT_NAMES or (isinstance(node, ast.Name) and _counts_a_retry(file, node)):
        return Part("OW104", node, name)
    if name in PERSONAL and not is_hashed:
        return Part("OW106", node, name)
    if isinstance(node, ast.Name) and name in _TIME:
        return Part("OW101", node, name)
    if isinstance(node, ast.Name) and name in OF_THIS_PROCESS - {"host", "ip", "hostname", "ip_address"}:
        return Part("OW105", node, name)
    return None


def _counts_a_retry(file: PythonFile, node: ast.Name) -> bool:
    """Whether a name is the counter of a loop that retries, whatever it is called."""
    place = retry_around(file, node)
    target = None if place is None else getattr(place.node, "target", None)
    return target is not None and any(isinstance(one, ast.Name) and one.id == node.id for one in ast.walk(target))
