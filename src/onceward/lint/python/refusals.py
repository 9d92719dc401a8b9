"""
Failures after which it is known that nothing was done: not sent, refused at the door, rolled back. Doing it again is
harmless then, and no rule speaks of it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

from onceward._core.key_ingredients import words_of
from onceward.lint.python.names import calls_in, last_name, walk_here, word_set
from onceward.lint.python.retry_places import RetryPlace, goes_on, types_of_policy

_NOTHING_HAPPENED: Final = word_set(
    "connect_timeout connect_error connect_timeout_error pool_timeout client_connector_error "
    "connection_refused_error new_connection_error gaierror operational_error integrity_error unique_violation "
    "deadlock_detected serialization_failure database_locked lock_not_available credentials_not_valid "
    "type_error attribute_error import_error module_not_found_error not_implemented_error name_error "
    "missing_schema invalid_schema invalid_url ssl_error certificate_error"
)
"""Exceptions after which nothing was done: not sent, or rolled back."""
_REFUSED: Final = re.compile(
    r"(?:^|_)(?:rate_?limit|throttl|too_many|flood|quota|not_found|unauthori[sz]ed|unauthenticated|authentication|"
    r"authorization|forbidden|bad_request|not_allowed|not_supported|unsupported|permission|denied|"
    r"(?:token|session|credentials?)_(?:\w+_)?(?:expired|invalid)|(?:expired|invalid)_(?:\w+_)?(?:token|session))"
)
"""Exceptions by which the other side says that it did not take the request in."""
_RENEWS: Final = re.compile(
    r"(?:^|_)(?:refresh|renew|re_?login|login|log_in|authenticate|re_?auth\w*|reauthorize)(?:_|$)"
)
_STATUSES: Final = {one.name: one.value for one in HTTPStatus}


def proves_nothing_happened(place: RetryPlace) -> bool:
    """Whether every failure that leads to another attempt says that the effect did not take place."""
    if place.statuses_only:
        tests = [one.test for body in place.bodies for one in ast.walk(body) if isinstance(one, ast.If) and _goes(one)]
        return all(_names_refusal(test) for test in tests)
    types: list[ast.expr] = []
    for handler in place.handlers:
        if _is_refusal(handler, place.node):
            continue
        if handler.type is None:
            return False
        types += handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    if place.policy is not None:
        types += types_of_policy(place.policy)
    if not types:
        return bool(place.handlers)
    return all(_names_nothing(words_of(last_name(one))) for one in types)


def _names_nothing(name: str) -> bool:
    return name in _NOTHING_HAPPENED or bool(_REFUSED.search(name))


def _goes(test: ast.If) -> bool:
    return any(isinstance(leaf, ast.Continue) for leaf in test.body)


def _is_refusal(handler: ast.ExceptHandler, retried: ast.AST) -> bool:
    """
    Whether a handler goes on only after a status that says that nothing was done (`if error.status == 405:`), or after
    it logged in again, which nobody does when an answer was lost.
    """
    others = (call for part in handler.body for call in calls_in(part) if call is not retried)
    if any(_RENEWS.search(words_of(last_name(call.func))) for call in others):
        return True
    tests = [one for part in handler.body for one in walk_here(part) if isinstance(one, ast.If)]
    if any(_names_refusal(one.test) and not goes_on(one.body) and _is_negated(one.test) for one in tests):
        return True
    again = [
        one for one in tests if any(leaf is retried or isinstance(leaf, ast.Continue) for leaf in _inside(one.body))
    ]
    only_there = not goes_on([handler.body[-1]]) or any(leaf is retried for leaf in _inside(handler.body))
    return bool(again) and only_there and all(_names_refusal(one.test) for one in again)


def _inside(body: list[ast.stmt]) -> Iterable[ast.AST]:
    return (leaf for part in body for leaf in ast.walk(part))


def _is_negated(test: ast.expr) -> bool:
    return any(isinstance(one, ast.NotEq | ast.NotIn | ast.Not) for one in ast.walk(test))


def _names_refusal(test: ast.expr) -> bool:
    """Whether a test names statuses, and all are refusals: 4xx, but not 408, which is a timeout over there."""
    numbers = {one.value for one in ast.walk(test) if isinstance(one, ast.Constant) and isinstance(one.value, int)}
    numbers |= {
        _STATUSES[one.attr] for one in ast.walk(test) if isinstance(one, ast.Attribute) and one.attr in _STATUSES
    }
    statuses = {one for one in numbers if one >= 100}
    is_range = any(isinstance(one, ast.Gt | ast.GtE) for one in ast.walk(test))
    return bool(statuses) and not is_range and all(400 <= one < 500 and one != 408 for one in statuses)
