"""
OW101 to OW107: what a key is made of.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from onceward._core.key_ingredients import (
    MADE_AFRESH,
    OF_THIS_PROCESS,
    PERSONAL,
    TIME_OR_ATTEMPT,
    words_of,
)
from onceward._core.key_lint import lint_recipe
from onceward.lint.findings import Finding
from onceward.lint.python.effects import MONEY
from onceward.lint.python.key_places import KeyPlace, is_key_name, is_under_missing_key, key_places
from onceward.lint.python.names import FUNCTIONS, FunctionNode, PythonFile, calls_in, walk_here, word_set
from onceward.lint.python.retry_checks import proves_nothing_happened
from onceward.lint.python.retry_places import RetryPlace, retry_around, retry_places

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
_KEEPERS: Final = re.compile(
    r"^(?:save|store|insert|put|persist|set|setex|hset|write|execute|record|remember|add|append|commit|enqueue|send_task|apply_async|delay|publish)"
)
_TIME: Final = TIME_OR_ATTEMPT & word_set("timestamp now utcnow today current_time")
_ATTEMPT: Final = frozenset(name for name in TIME_OR_ATTEMPT if name.startswith(("attempt", "retr", "tr")))


@dataclass(frozen=True, slots=True)
class Part:
    """One ingredient of a key that is judged: its node, and why."""

    code: str
    node: ast.AST
    what: str


def check_keys(file: PythonFile) -> Iterator[Finding]:
    """What is wrong with the keys of a file; each place is told once per code."""
    told: set[tuple[str, int, int]] = set()
    for place in key_places(file):
        for finding in _judge(file, place):
            if (finding.code, finding.line, finding.column) not in told:
                told.add((finding.code, finding.line, finding.column))
                yield finding
    yield from _defaults(file)


def _judge(file: PythonFile, place: KeyPlace) -> Iterator[Finding]:
    if place.is_template and isinstance(place.value, ast.Constant):
        yield from _judge_template(file, place.value)
        return
    if isinstance(place.value, ast.Constant):
        if _is_shared_constant(file, place.value):
            yield file.finding("OW107", place.value, "is the same for every operation. Name what it is about: an id")
        return
    seen: set[str] = set()
    for part in _parts(file, place.value):
        if part.code in seen or (place.is_reference and part.code != "OW101"):
            continue
        finding = _told(file, place, part)
        if finding is not None:
            seen.add(part.code)
            yield finding


def _told(file: PythonFile, place: KeyPlace, part: Part) -> Finding | None:
    text = file.text(part.node)
    retry = retry_around(file, part.node)
    if part.code in ("OW101", "OW102") and retry is not None and _used_inside(file, place, retry):
        if proves_nothing_happened(retry):
            return None
        return file.finding(
            "OW103",
            part.node,
            f"a new key for every attempt: {text} is inside the retry. Make the key once, before the first attempt",
        )
    if part.code == "OW102" and (
        place.is_kept or place.is_fallback or place.is_returned or _is_kept(file, place) or _is_transport(file, place)
    ):
        return None
    if part.code == "OW101" and place.is_fallback and place.is_kept:
        return None
    advice = {
        "OW101": f"{text} differs on every attempt, so a retry is a new operation. Use ids that are stored",
        "OW102": f"{text} is made afresh by every call, so a retry from outside is a new operation. Derive the key "
        "from what the operation is about, or store it before the first attempt",
        "OW104": f"{text} counts attempts, so every retry is a new operation. Leave it out of the key",
        "OW105": f"{text} belongs to this process, so a retry elsewhere is a new operation. Use ids that are stored",
        "OW106": f"{text} is personal data, and keys end up in logs and with providers. Use an opaque id",
    }
    return file.finding(part.code, part.node, advice[part.code])


def _judge_template(file: PythonFile, node: ast.Constant) -> Iterator[Finding]:
    """By the names of the fields: the words of `lint_recipe`, which `onceward key explain --recipe` prints, too."""
    fields = {words_of(one) for one in re.findall(r"\{([^{}]*)\}", str(node.value))}
    warnings = lint_recipe(str(node.value))
    for found in warnings:
        if found.code == "K1":
            code = "OW104" if fields & _ATTEMPT else "OW101"
        elif found.code == "K3":
            code = "OW102" if fields & MADE_AFRESH else "OW105"
        elif found.code == "K2":
            # `welcome:{user_id}` may well be meant: one for each user. Of a payment it never is.
            literal = re.sub(r"\{[^{}]*\}", "", str(node.value))
            is_meant = any(one.isalpha() for one in literal) and not MONEY.search(words_of(literal))
            if is_meant or len(warnings) > 1:
                continue
            code = "OW107"
        else:
            code = "OW106"
        yield file.finding(code, node, f"{found.message}; {found.advice}")


def _parts(file: PythonFile, value: ast.expr) -> Iterator[Part]:
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
    if isinstance(name, ast.Name) and is_key_name(name.id):
        return True
    return file.is_parameter(name) and (isinstance(value, ast.BoolOp | ast.IfExp) or is_under_missing_key(file, value))


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
    if name in _ATTEMPT or (isinstance(node, ast.Name) and _counts_a_retry(file, node)):
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


def _used_inside(file: PythonFile, place: KeyPlace, retry: RetryPlace) -> bool:
    above = {place.value, *file.above(place.value)}
    return any(body in above for body in retry.bodies)


def _is_kept(file: PythonFile, place: KeyPlace) -> bool:
    """
    Whether the key outlives the attempt: its variable is handed to something that stores it, is used by a retry that
    begins after it was made, or is given back to the caller.
    """
    parent = file.parents.get(place.value)
    names = {one.id for one in getattr(parent, "targets", []) if isinstance(one, ast.Name)}
    if isinstance(parent, ast.AnnAssign) and isinstance(parent.target, ast.Name):
        names = {parent.target.id}
    if isinstance(place.value, ast.Name):
        names.add(place.value.id)
    function = file.function_of(place.value)
    if not names or function is None:
        return False
    return bool(names & file.remembered("kept", function, lambda: _kept_names(file, function)))


def _kept_names(file: PythonFile, function: FunctionNode) -> set[str]:
    """The names in a function that are handed to something that stores them, or that its retries only read."""
    kept = {
        one.id
        for call in calls_in(function)
        if _KEEPERS.match(_method(call))
        for one in ast.walk(call)
        if isinstance(one, ast.Name)
    }
    retried = [one for one in retry_places(file) if file.function_of(one.node) is function]
    inside = [one for place in retried for body in place.bodies for one in ast.walk(body) if isinstance(one, ast.Name)]
    set_inside = {one.id for one in inside if isinstance(one.ctx, ast.Store)}
    return kept | {one.id for one in inside if one.id not in set_inside}


def _is_transport(file: PythonFile, place: KeyPlace) -> bool:
    """
    Whether it stands in what sends requests for others, or makes their headers: a key for the retries below it, in
    place of none.
    """
    words = words_of(getattr(file.function_of(place.value), "name", "")).split("_")
    return bool({"request", "requests", "headers", "transport"} & {*words})


def _method(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _is_shared_constant(file: PythonFile, value: ast.Constant) -> bool:
    """A fixed text as the key of a call, in a function that is called for more than one thing."""
    if (
        not isinstance(value.value, str)
        or not value.value
        or not isinstance(file.parents.get(value), ast.keyword | ast.Dict)
    ):
        return False
    function = file.function_of(value)
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    parameters = [one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    return bool({*parameters} - {"self", "cls"}) and not function.name.startswith("test")


def _defaults(file: PythonFile) -> Iterator[Finding]:
    """`def pay(idempotency_key=str(uuid4()))`: made once, when the function is defined."""
    for node in file.nodes:
        if isinstance(node, FUNCTIONS):
            arguments = [*node.args.posonlyargs, *node.args.args]
            pairs = [*zip(arguments[len(arguments) - len(node.args.defaults) :], node.args.defaults, strict=True)]
            pairs += [
                (one, value) for one, value in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if value
            ]
            for argument, value in pairs:
                if words_of(argument.arg).endswith(("idempotency_key", "idem_key")):
                    for part in _parts(file, value):
                        if part.code in ("OW101", "OW102"):
                            message = (
                                f"{file.text(part.node)} is made once, when the function is defined: all calls share it"
                            )
                            yield file.finding("OW107", part.node, message)
                            break
