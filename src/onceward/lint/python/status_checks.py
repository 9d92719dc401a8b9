"""
OW113: retries of statuses that another attempt does not change.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Final

from onceward._core.key_ingredients import words_of
from onceward.lint.findings import Finding
from onceward.lint.python.names import PythonFile, calls_in, keyword_of, last_name, walk_here
from onceward.lint.python.retry_places import RetryPlace, retry_places
from onceward.lint.python.scopes import FUNCTIONS
from onceward.lint.python.waiting import is_poll

PERMANENT: Final = frozenset({400, 401, 402, 403, 404, 405, 406, 410, 411, 414, 415, 422, 451})
"""
Statuses that another attempt does not change. 409 is not here: several services say with it that the first attempt is
still running.
"""
_NAMES: Final = {one.name: one.value for one in HTTPStatus}
_RENEWS: Final = re.compile(r"refresh|renew|re_?login|re_?auth")
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


def check_statuses(file: PythonFile) -> Iterator[Finding]:
    """Which statuses a file retries and should not."""
    for node in file.nodes:
        yield from _statuses(file, node)
    for place in retry_places(file):
        if place.library:
            yield from _all_http_errors(file, place)
        elif isinstance(place.node, ast.For | ast.While | ast.AsyncFor) and not is_poll(file, place.node):
            yield from _retried_statuses_in(file, place)


def _statuses(file: PythonFile, node: ast.AST) -> Iterator[Finding]:
    """Lists of statuses that are called retryable."""
    lists: list[tuple[str, ast.expr]] = []
    if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            name = words_of(last_name(target))
            if (
                _RETRY_LISTS.search(name)
                and _STATUS_WORDS.search(name)
                and not re.search(r"(?:^|_)(?:non?|not|never|dont|un|exclude)_?(?:retr|_)|(?:^|_)no_?retr", name)
            ):
                lists.append((name, node.value))
    elif isinstance(node, ast.Call):
        lists += [(one.arg, one.value) for one in node.keywords if one.arg in _STATUS_ARGUMENTS]
        if file.dotted(node.func).startswith("aiohttp_retry.") and (given := keyword_of(node, "statuses")):
            lists.append(("statuses", given))
    for name, value in lists:
        wrong = [one for one in _permanent_in(file, value) if not _is_explained(file, node, one)]
        if wrong:
            yield file.finding(
                "OW113",
                wrong[0],
                f"{name} has {', '.join(str(_status(file, one)) for one in wrong)}, which another attempt cannot fix. "
                "Retry 408, 429, 502, 503, 504 and requests that did not arrive",
            )


def _is_explained(file: PythonFile, node: ast.AST, status: ast.expr) -> bool:
    """
    Whether a comment right above or beside the list speaks of this very status, or stands beside it on a line of its
    own: then somebody thought about it.
    """
    if re.fullmatch(r"[\w.]+,?\s*#.*\w.*", file.source.line(status.lineno).strip()):
        return True
    first, last = getattr(node, "lineno", 1), getattr(node, "end_lineno", 1)
    above = first
    while file.source.line(above - 1).lstrip().startswith("#"):
        above -= 1
    comments = (file.source.line(number).partition("#")[2] for number in range(above, last + 1))
    return any(re.search(rf"\b{_status(file, status)}\b", comment) for comment in comments)


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
            asked = words_of(last_name(test.left))
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
            if wrong and not _changes_credentials([one] if number not in (401, 403) else place.bodies):
                message = f"retries when {file.text(test)}: another attempt cannot fix a 4xx. Let it surface"
                yield file.finding("OW113", test, message)


def _changes_credentials(parts: Sequence[ast.AST]) -> bool:
    """After a 401, a fresh token makes another request of it: that is no blind retry."""
    words = " ".join(getattr(one, "attr", "") or getattr(one, "id", "") for part in parts for one in ast.walk(part))
    return bool(re.search(r"token|refresh|auth|login|credential|relog", words, re.IGNORECASE))


def _all_http_errors(file: PythonFile, place: RetryPlace) -> Iterator[Finding]:
    """A library that retries every HTTP error, around a function that raises for each status."""
    policy = place.policy
    if policy is None or not _raises_for_status(file, place) or keyword_of(policy, "giveup", "retry_error_callback"):
        return
    if any(_RENEWS.search(last_name(call.func)) for body in place.bodies for call in calls_in(body)):
        return  # What was refused is made anew before the next attempt.
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
                message = f"{file.text(each)} is also raised for 400, 401 and 404, which another attempt cannot fix"
                yield file.finding("OW113", each, f"{message}. Retry by status")


def _raises_for_status(file: PythonFile, place: RetryPlace) -> bool:
    return any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "raise_for_status"
        and not _is_conditional(file, call)
        for body in place.bodies
        for call in calls_in(body)
    )


def _is_conditional(file: PythonFile, node: ast.AST) -> bool:
    """Whether it stands under a test, which may let only some statuses through."""
    for one in file.above(node):
        if isinstance(one, ast.If | ast.IfExp | ast.Match):
            return True
        if isinstance(one, FUNCTIONS):
            return False
    return False
