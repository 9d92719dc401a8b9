"""
OW113 to OW115: retries that cannot help, that never end, or that come all at once.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import Final

from onceward._core.key_ingredients import words_of
from onceward.lint.findings import Finding
from onceward.lint.python.names import PythonFile, calls_in, keyword_of, walk_here, word_set
from onceward.lint.python.retry_places import BLOCKS, DECORATORS, RetryPlace, ceiling_of, retry_places

PERMANENT: Final = frozenset({400, 401, 402, 403, 404, 405, 406, 410, 411, 413, 414, 415, 422, 451})
"""
Statuses that another attempt does not change. 409 is not here: several services say with it that the first attempt is
still running.
"""
_NAMES: Final = {one.name: one.value for one in HTTPStatus}
_RETRY_LISTS: Final = re.compile(r"retr(?:y|ies|yable|iable)|forcelist|transient")
_STATUS_WORDS: Final = re.compile(r"status|codes?\b|code|http|forcelist|errors?$")
_STATUS_ARGUMENTS: Final = frozenset(
    {"status_forcelist", "retry_statuses", "retry_on_status", "retry_status_codes", "status_codes_to_retry"}
)
_HTTP_ERRORS: Final = frozenset(
    {
        "requests.HTTPError",
        "requests.exceptions.HTTPError",
        "httpx.HTTPStatusError",
        "requests.RequestException",
        "requests.exceptions.RequestException",
        "httpx.HTTPError",
        "aiohttp.ClientError",
        "aiohttp.ClientResponseError",
        "urllib.error.HTTPError",
        "Exception",
    }
)
_WAITS_WITHOUT_JITTER: Final = frozenset({"wait_exponential", "wait_fixed", "wait_incrementing", "wait_chain"})
_SLEEPS: Final = ("time.sleep", "asyncio.sleep", "trio.sleep", "anyio.sleep", "gevent.sleep", "eventlet.sleep")
_NETWORK: Final = word_set(
    "requests httpx aiohttp urllib urllib3 boto3 botocore smtplib grpc redis psycopg2 psycopg pymongo kafka "
    " pika stripe socket websockets websocket http"
)


def check_policies(file: PythonFile) -> Iterator[Finding]:
    """What is wrong with the way a file retries."""
    for node in file.nodes:
        yield from _statuses(file, node)
    for place in retry_places(file):
        if place.library:
            yield from _all_http_errors(file, place)
            yield from _library_policy(file, place)
        elif isinstance(place.node, ast.For | ast.While | ast.AsyncFor):
            yield from _loop(file, place.node, place)
            yield from _retried_statuses_in(file, place)


def _statuses(file: PythonFile, node: ast.AST) -> Iterator[Finding]:
    """Lists of statuses that are called retryable."""
    lists: list[tuple[str, ast.expr]] = []
    if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            name = words_of(getattr(target, "id", "") or getattr(target, "attr", ""))
            if _RETRY_LISTS.search(name) and _STATUS_WORDS.search(name) and not re.search(r"\bnon|not|never|no_", name):
                lists.append((name, node.value))
    elif isinstance(node, ast.Call):
        lists += [(one.arg, one.value) for one in node.keywords if one.arg in _STATUS_ARGUMENTS]
        if file.dotted(node.func).startswith("aiohttp_retry.") and (given := keyword_of(node, "statuses")):
            lists.append(("statuses", given))
    for name, value in lists:
        wrong = _permanent_in(file, value)
        if wrong:
            yield file.finding(
                "OW113",
                wrong[0],
                f"{name} has {', '.join(str(_status(file, one)) for one in wrong)}, which another attempt does not "
                "change. Retry 408, 429, 502, 503, 504 and what did not arrive",
            )


def _permanent_in(file: PythonFile, value: ast.expr) -> list[ast.expr]:
    if isinstance(value, ast.Call) and file.dotted(value.func) in ("frozenset", "set", "tuple", "list", "range"):
        if file.dotted(value.func) == "range":
            numbers = [one.value for one in value.args if isinstance(one, ast.Constant) and isinstance(one.value, int)]
            return [value] if len(numbers) == 2 and any(numbers[0] <= one < numbers[1] for one in PERMANENT) else []
        value = value.args[0] if value.args else value
    if not isinstance(value, ast.List | ast.Tuple | ast.Set):
        return []
    return [one for one in value.elts if _status(file, one) in PERMANENT]


def _status(file: PythonFile, node: ast.expr) -> int | str | None:
    if isinstance(node, ast.Call) and file.dotted(node.func) == "range":
        return file.text(node)
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
        return node.value
    if isinstance(node, ast.Attribute):
        name = node.value.attr if node.attr == "value" and isinstance(node.value, ast.Attribute) else node.attr
        if name in _NAMES:
            return _NAMES[name]
        spelt = re.fullmatch(r"(?:HTTP_)?(\d{3})(?:_[A-Z_]+)?", name)
        return int(spelt[1]) if spelt else None
    return None


def _retried_statuses_in(file: PythonFile, place: RetryPlace) -> Iterator[Finding]:
    """`if response.status_code >= 400: continue`, and the like, in a loop that retries."""
    for body in place.bodies:
        for one in walk_here(body):
            if not isinstance(one, ast.If) or not isinstance(one.body[-1], ast.Continue):
                continue
            test = one.test
            if not isinstance(test, ast.Compare) or len(test.ops) != 1:
                continue
            asked = words_of(getattr(test.left, "attr", "") or getattr(test.left, "id", ""))
            if asked not in ("status", "status_code"):
                continue
            value, operator = test.comparators[0], test.ops[0]
            number = _status(file, value)
            wrong = (
                (isinstance(operator, ast.GtE | ast.Gt) and number in (399, 400))
                or (isinstance(operator, ast.NotEq) and number == 200)
                or (isinstance(operator, ast.Eq) and number in PERMANENT)
                or (isinstance(operator, ast.In) and bool(_permanent_in(file, value)))
            )
            if wrong and not _changes_credentials(one):
                message = f"tries again when {file.text(test)}: another attempt does not change a 4xx. Let it surface"
                yield file.finding("OW113", test, message)


def _changes_credentials(node: ast.If) -> bool:
    """After a 401, a fresh token makes another request of it: that is no blind retry."""
    words = " ".join(getattr(one, "attr", "") or getattr(one, "id", "") for part in node.body for one in ast.walk(part))
    return bool(re.search(r"token|refresh|auth|login|credential|relog", words, re.IGNORECASE))


def _all_http_errors(file: PythonFile, place: RetryPlace) -> Iterator[Finding]:
    """A library that retries every HTTP error, around a function that raises for each status."""
    policy = place.policy
    if policy is None or not _raises_for_status(place) or keyword_of(policy, "giveup", "retry_error_callback"):
        return
    caught: list[ast.expr] = []
    if place.library == "backoff" and len(policy.args) > 1:
        caught = [policy.args[1]]
    elif place.library == "stamina" and (given := keyword_of(policy, "on")) is not None:
        caught = [given]
    elif place.library == "tenacity":
        given = keyword_of(policy, "retry")
        if isinstance(given, ast.Call) and file.dotted(given.func) == "tenacity.retry_if_exception_type":
            caught = given.args[:1]
    for one in caught:
        for each in one.elts if isinstance(one, ast.Tuple | ast.List) else [one]:
            name = file.dotted(each) if isinstance(each, ast.Name | ast.Attribute) else ""
            if name in _HTTP_ERRORS or name == "?Exception":
                message = (
                    f"{file.text(each)} is also raised for 400, 401 and 404, which another attempt does not change"
                )
                yield file.finding("OW113", each, f"{message}. Retry by status")


def _raises_for_status(place: RetryPlace) -> bool:
    return any(
        isinstance(call.func, ast.Attribute) and call.func.attr == "raise_for_status"
        for body in place.bodies
        for call in calls_in(body)
    )


def _library_policy(file: PythonFile, place: RetryPlace) -> Iterator[Finding]:
    policy = place.policy
    if place.library == "tenacity" and not isinstance(place.node, ast.Call) and place.function is not None:
        yield file.finding(
            "OW114", place.node, "retries for ever: there is no `stop`. Add stop_after_attempt or stop_after_delay"
        )
        return
    if policy is None:
        return
    stops = {
        "tenacity": ("stop",),
        "backoff": ("max_tries", "max_time"),
        "retry": ("tries",),
        "retrying": ("stop_max_attempt_number", "stop_max_delay", "stop_func", "stop"),
    }.get(place.library)
    name = file.dotted(policy.func)
    if stops and (name in DECORATORS or f"{name}()" in BLOCKS):
        positional = place.library == "retry" and len(policy.args) > 1
        if place.library == "tenacity" and any(isinstance(one, ast.Constant) for one in policy.args):
            return
        if not positional and not ceiling_of(policy, *stops) and not _is_forever_on_purpose(file, policy, stops):
            yield file.finding("OW114", policy, f"retries for ever: there is no `{stops[0]}`. Add a ceiling")
    yield from _library_jitter(file, place, policy)


def _is_forever_on_purpose(file: PythonFile, policy: ast.Call, stops: tuple[str, ...]) -> bool:
    given = keyword_of(policy, *stops)
    return given is not None and not (isinstance(given, ast.Constant) and given.value is None)


def _library_jitter(file: PythonFile, place: RetryPlace, policy: ast.Call) -> Iterator[Finding]:
    if place.library == "tenacity":
        wait = keyword_of(policy, "wait")
        for one in (wait, *file.values_of(wait)) if wait is not None else ():
            if isinstance(one, ast.Call) and file.dotted(one.func).removeprefix("tenacity.") in _WAITS_WITHOUT_JITTER:
                message = (
                    f"{file.text(one.func)} has no jitter: all callers come back at once. Use wait_random_exponential"
                )
                yield file.finding("OW115", one, message)
    elif place.library == "backoff":
        jitter = keyword_of(policy, "jitter")
        if isinstance(jitter, ast.Constant) and jitter.value is None:
            yield file.finding("OW115", jitter, "without jitter all callers come back at once. Leave full_jitter on")
    elif place.library == "stamina":
        jitter = keyword_of(policy, "wait_jitter")
        if isinstance(jitter, ast.Constant) and jitter.value == 0:
            yield file.finding("OW115", jitter, "without jitter all callers come back at once. Leave it on")
    elif place.library == "Celery":
        jitter = keyword_of(policy, "retry_jitter")
        if isinstance(jitter, ast.Constant) and jitter.value is False:
            yield file.finding("OW115", jitter, "without jitter all tasks come back at once. Leave it on")


def _loop(file: PythonFile, loop: ast.For | ast.While | ast.AsyncFor, place: RetryPlace) -> Iterator[Finding]:
    sleeps = [call for body in place.bodies for call in calls_in(body) if file.dotted(call.func) in _SLEEPS]
    if not sleeps or not _touches_network(file, place) or _is_timed(file, loop):
        return
    endless = isinstance(loop, ast.While) and isinstance(loop.test, ast.Constant) and bool(loop.test.value)
    if endless and not _gives_up(place):
        message = "tries again for ever: nothing in the loop counts attempts or time. Give it a ceiling of both"
        yield file.finding("OW114", loop, message)
    # A pause that is computed elsewhere may have jitter; one that is spelt out has none.
    for sleep in sleeps[:1]:
        if (
            sleep.args
            and not _is_poll(sleep.args[0])
            and _is_spelt_out(file, sleep.args[0])
            and not _names_chance(place)
        ):
            message = "pauses equally long for everybody, so all come back at once. Sleep random.uniform(0, ceiling)"
            yield file.finding("OW115", sleep, message)


def _is_timed(file: PythonFile, loop: ast.AST) -> bool:
    """Whether a block around it ends it: `with move_on_after(20):`, `async with timeout(5):`."""
    return any(
        isinstance(one, ast.With | ast.AsyncWith)
        and any(
            re.search(r"timeout|fail_after|move_on_after|deadline", file.text(item.context_expr)) for item in one.items
        )
        for one in file.above(loop)
    )


def _is_poll(pause: ast.expr) -> bool:
    """A fixed pause of less than a second waits for something near to be ready; nobody retries a service so."""
    return isinstance(pause, ast.Constant) and isinstance(pause.value, int | float) and pause.value < 1


def _gives_up(place: RetryPlace) -> bool:
    """Whether something in the loop can end it besides success: a raise, or a test with a way out."""
    for handler in place.handlers:
        if any(isinstance(one, ast.Raise | ast.Return | ast.Break) for part in handler.body for one in walk_here(part)):
            return True
    for body in place.bodies:
        for one in walk_here(body):
            if isinstance(one, ast.Raise):
                return True
            if isinstance(one, ast.AugAssign):
                return True  # Something is counted.
    return place.statuses_only


def _touches_network(file: PythonFile, place: RetryPlace) -> bool:
    for body in place.bodies:
        for call in calls_in(body):
            name = file.dotted(call.func)
            if name.split(".")[0].removesuffix("()") in _NETWORK:
                return True
            method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            owner = call.func.value if isinstance(call.func, ast.Attribute) else None
            spelt = words_of(getattr(owner, "attr", "") or getattr(owner, "id", ""))
            if method in ("get", "post", "put", "patch", "delete", "request", "fetch", "send") and re.search(
                r"(?:^|_)(?:session|client|http|api)$", spelt
            ):
                return True
    return False


def _is_spelt_out(file: PythonFile, value: ast.expr) -> bool:
    """Numbers, names of this file and arithmetic: no call in it that could roll dice."""
    todo, seen = [value], 0
    while todo and seen < 50:
        seen += 1
        node = todo.pop()
        if isinstance(node, ast.Call) and file.dotted(node.func) not in (
            "min",
            "max",
            "float",
            "int",
            "pow",
            "math.pow",
            "round",
        ):
            return False
        if isinstance(node, ast.Attribute | ast.Subscript):
            return False
        if isinstance(node, ast.Name):
            values = file.values_of(node)
            if file.is_parameter(node) and not values:
                continue
            todo += values
            continue
        todo += [one for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr)]
    return True


def _names_chance(place: RetryPlace) -> bool:
    for body in place.bodies:
        for one in ast.walk(body):
            text = getattr(one, "attr", "") or getattr(one, "id", "")
            if isinstance(text, str) and re.search(
                r"random|jitter|uniform|retry_after|retryafter", text, re.IGNORECASE
            ):
                return True
            if isinstance(one, ast.Constant) and isinstance(one.value, str) and "retry-after" in one.value.lower():
                return True
    return False
