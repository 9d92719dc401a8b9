"""
Checks of malformed JSON: it is refused with a 4xx, and nothing breaks.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from onceward.testing.http_suite.check_support import HttpCheck, NotShown, check, require
from onceward.testing.http_suite.execution_detector import ExecutionDetector
from onceward.testing.http_suite.target import body_members


def _twice(members: dict[str, Any]) -> str:
    name = next(iter(members))
    return f'{json.dumps(members)[:-1]}, {json.dumps(name)}: "another"}}'


def _surrogate(members: dict[str, Any]) -> str:
    return f'{json.dumps(members)[:-1]}, "onceward": "\\ud800"}}'


def _not_a_number(members: dict[str, Any]) -> str:
    return f'{json.dumps(members)[:-1]}, "onceward": NaN}}'


def _unfinished(members: dict[str, Any]) -> str:
    return json.dumps(members)[:-1]


def _refused(name: str, what: str, spoil: Callable[[dict[str, Any]], str]) -> HttpCheck:
    @check(
        name,
        sends=f"JSON with {what}, under a fresh key",
        must="it is refused with a 4xx: it does not run, and there is no 5xx",
    )
    def run(detector: ExecutionDetector) -> None:
        request = detector.client.new_request()
        members = body_members(request.body)
        if members is None:
            raise NotShown("the body is not a JSON object with members")
        response = detector.client.send(replace(request, body=spoil(members).encode("ascii")))
        require(400 <= response.status < 500, f"JSON with {what} was answered {response}")

    return run


CHECKS = (
    _refused("json-member-twice", "a duplicate member", _twice),
    _refused("json-surrogate", "a lone surrogate", _surrogate),
    _refused("json-nan", "NaN", _not_a_number),
    _refused("json-unfinished", "its end missing", _unfinished),
)
