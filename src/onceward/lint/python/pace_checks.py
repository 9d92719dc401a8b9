"""
OW114 and OW115: retries that never end, and retries that come all at once.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from onceward._core.key_ingredients import words_of
from onceward.lint.findings import Finding
from onceward.lint.python.crowds import goes_on_for_ever, is_started_by_hand, names_chance, touches_network
from onceward.lint.python.names import PythonFile, calls_in, keyword_of, last_name, walk_here, word_set
from onceward.lint.python.retry_places import (
    BLOCKS,
    DECORATORS,
    RetryPlace,
    ceiling_of,
    retry_places,
    types_of_policy,
)
from onceward.lint.python.waiting import NAME_MAX, is_poll, names_waiter

_WAITS_WITHOUT_JITTER: Final = frozenset({"wait_exponential", "wait_fixed", "wait_incrementing", "wait_chain"})
_SLEEPS: Final = ("time.sleep", "asyncio.sleep", "trio.sleep", "anyio.sleep", "gevent.sleep", "eventlet.sleep")
_LOCAL_ERRORS: Final = word_set(
    "ValueError KeyError TypeError IndexError AttributeError AssertionError JSONDecodeError ValidationError "
    "FileExistsError FileNotFoundError PermissionError BlockingIOError IntegrityError"
)
_LOCAL_WORK: Final = re.compile(r"(?:^|_)(?:parse|decode|repair|rename|unlink|rmtree|rmdir)(?:_|$)")
_RENEWED: Final = re.compile(
    r"(?:credential|token|session|signature)s?_(?:\w+_)?expired|expired_(?:\w+_)?(?:credential|token|session)"
)
"""Exceptions after which it is tried with what was made anew, so that the next refusal is another one."""
_OUTSIDE: Final = re.compile(
    r"http|request|response|time|connect|network|socket|rpc|api|serv|client|rate|throttl|limit|unavail|busy|overload|"
    r"deadlock|operational|dbapi|database|unprocessed|retr(?:y|iable)|transient|temporar|internal|remote|url|broken|"
    r"expired|limit|resource|cloud|^(?:(?:base)?exception|oserror|ioerror|error)?$",
    re.IGNORECASE,
)
"""Exceptions that may come from the way there, or from a service that has too much to do."""
_LOAD: Final = re.compile(
    r"rate|limit|throttl|overload|quota|unavailable|busy|time|connect|temporar|\b[45]\d\d\b", re.I
)


def check_pace(file: PythonFile) -> Iterator[Finding]:
    """Whether the retries of a file end, and do not come all at once."""
    for place in retry_places(file):
        if place.library:
            yield from _library_policy(file, place)
        elif isinstance(place.node, ast.For | ast.While | ast.AsyncFor):
            yield from _loop(file, place.node, place)


def _library_policy(file: PythonFile, place: RetryPlace) -> Iterator[Finding]:
    policy = place.policy
    if place.library == "tenacity" and policy is None and not isinstance(place.node, ast.Call):
        if not goes_on_for_ever(file, place):
            message = "retries for ever: there is no `stop`. Add stop_after_attempt or stop_after_delay"
            yield file.finding("OW114", place.node, message)
        return
    if policy is None or _waits_or_is_local(file, place, policy):
        return
    stops = {
        "tenacity": ("stop",),
        "backoff": ("max_tries", "max_time"),
        "retry": ("tries",),
        "retrying": ("stop_max_attempt_number", "stop_max_delay", "stop_func", "stop"),
    }.get(place.library)
    name = file.dotted(policy.func)
    types = types_of_policy(policy)
    if types and all(_RENEWED.search(words_of(last_name(one)[:NAME_MAX])) for one in types):
        stops = None
    if stops and (name in DECORATORS or f"{name}()" in BLOCKS):
        positional = place.library == "retry" and len(policy.args) > 1
        if place.library == "tenacity" and any(isinstance(one, ast.Constant) for one in policy.args):
            return
        if not positional and not ceiling_of(policy, *stops) and not goes_on_for_ever(file, place):
            yield file.finding("OW114", policy, f"retries for ever: there is no `{stops[0]}`. Add a ceiling")
    if not is_started_by_hand(file, policy):
        yield from _library_jitter(file, place, policy)


def _waits_or_is_local(file: PythonFile, place: RetryPlace, policy: ast.Call) -> bool:
    """
    Whether it waits until something is ready, or is about nothing outside: neither is a crowd before a door. The names
    of the function and of the test for exceptions say so, or exceptions that no network raises.
    """
    name = getattr(place.function or file.function_of(place.node), "name", "")
    if names_waiter(name) or _LOCAL_WORK.search(words_of(name)):
        return True
    given = keyword_of(policy, "retry")
    if isinstance(given, ast.Call) and last_name(given.func) == "retry_if_exception" and given.args:
        return names_waiter(last_name(given.args[0]))
    types = [last_name(one) for one in types_of_policy(policy)]
    return bool(types) and all(one in _LOCAL_ERRORS or not _OUTSIDE.search(one) for one in types)


def _library_jitter(file: PythonFile, place: RetryPlace, policy: ast.Call) -> Iterator[Finding]:
    if place.library == "tenacity":
        wait = keyword_of(policy, "wait")
        for one in (wait, *file.values_of(wait)) if wait is not None else ():
            if isinstance(one, ast.Call) and last_name(one.func) == "wait_fixed" and any(map(_is_short, one.args[:1])):
                continue
            if isinstance(one, ast.Call) and file.dotted(one.func).removeprefix("tenacity.") in _WAITS_WITHOUT_JITTER:
                message = (
                    f"{file.text(one.func)} has no jitter: all callers come back at once. Use wait_random_exponential"
                )
                finding = file.finding("OW115", one, message)
                if isinstance(one.func, ast.Attribute) and one.func.attr == "wait_exponential":
                    fix = file.edit(one.func, f"{ast.unparse(one.func.value)}.wait_random_exponential")
                    finding = replace(finding, fix=fix)
                yield finding
    elif place.library == "backoff":
        jitter = keyword_of(policy, "jitter")
        if isinstance(jitter, ast.Constant) and jitter.value is None:
            finding = file.finding(
                "OW115", jitter, "without jitter all callers come back at once. Leave full_jitter on"
            )
            module = policy.func.value if isinstance(policy.func, ast.Attribute) else None
            if isinstance(module, ast.Name):
                finding = replace(finding, fix=file.edit(jitter, f"{module.id}.full_jitter"))
            yield finding
    elif place.library == "stamina":
        jitter = keyword_of(policy, "wait_jitter")
        if isinstance(jitter, ast.Constant) and jitter.value == 0:
            yield file.finding("OW115", jitter, "without jitter all callers come back at once. Leave it on")
    elif place.library == "Celery":
        jitter = keyword_of(policy, "retry_jitter")
        if isinstance(jitter, ast.Constant) and jitter.value is False:
            finding = file.finding("OW115", jitter, "without jitter all tasks come back at once. Leave it on")
            yield replace(finding, fix=file.edit(jitter, "True"))


def _loop(file: PythonFile, loop: ast.For | ast.While | ast.AsyncFor, place: RetryPlace) -> Iterator[Finding]:
    tried = {part for handler in place.handlers for part in getattr(file.parents.get(handler), "body", ())}
    sleeps = [
        call
        for body in place.bodies
        for call in calls_in(body)
        if file.dotted(call.func) in _SLEEPS and not tried & {*file.above(call)} and not _is_before(file, call, place)
    ]
    if not sleeps or not touches_network(file, place) or _is_timed(file, loop) or is_poll(file, loop):
        return
    endless = isinstance(loop, ast.While) and isinstance(loop.test, ast.Constant) and bool(loop.test.value)
    if endless and not _gives_up(place) and not goes_on_for_ever(file, place):
        message = "retries for ever: nothing in the loop counts attempts or time. Limit both"
        yield file.finding("OW114", loop, message)
    # A pause that is computed elsewhere may have jitter; one that is spelt out has none.
    for sleep in sleeps[:1]:
        if (
            sleep.args
            and not _is_short(sleep.args[0])
            and _is_spelt_out(file, sleep.args[0])
            and not names_chance(place)
            and not _is_after_one_error(file, sleep)
            and not is_started_by_hand(file, sleep)
        ):
            message = "waits equally long for every caller, so all come back at once. Sleep random.uniform(0, ceiling)"
            yield file.finding("OW115", sleep, message)


def _is_before(file: PythonFile, sleep: ast.Call, place: RetryPlace) -> bool:
    """Whether every round begins with this pause: that paces the calls, whether they fail or not."""
    statement = file.parents.get(sleep)
    statement = file.parents.get(statement) if isinstance(statement, ast.Await) else statement
    first = min((getattr(file.parents.get(one), "lineno", 0) for one in place.handlers), default=0)
    return statement in place.bodies and sleep.lineno < first


def _is_timed(file: PythonFile, loop: ast.AST) -> bool:
    """Whether a block around it ends it: `with move_on_after(20):`, `async with timeout(5):`."""
    return any(
        isinstance(one, ast.With | ast.AsyncWith)
        and any(
            re.search(r"timeout|fail_after|move_on_after|deadline", file.text(item.context_expr)) for item in one.items
        )
        for one in file.above(loop)
    )


def _is_after_one_error(file: PythonFile, sleep: ast.Call) -> bool:
    """Whether it pauses only after an error whose text is named, and is not about load: `if "locked" in str(error)`."""
    for one in file.above(sleep):
        if isinstance(one, ast.ExceptHandler):
            return False
        for leaf in ast.walk(one.test) if isinstance(one, ast.If) else ():
            if (
                isinstance(leaf, ast.Compare)
                and isinstance(leaf.ops[0], ast.In)
                and isinstance(leaf.left, ast.Constant)
            ):
                return not _LOAD.search(str(leaf.left.value))
    return False


def _is_short(pause: ast.expr) -> bool:
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


def _is_spelt_out(file: PythonFile, value: ast.expr) -> bool:
    """Numbers, names of this file and arithmetic: no call in it that could roll dice."""
    todo, seen = [value], {value}
    while todo:
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
            inner = file.values_of(node)
        else:
            inner = [one for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr)]
        todo += [one for one in inner if one not in seen]
        seen.update(inner)
    return True
