"""
What becomes of a key whose request failed.
"""

from __future__ import annotations

from onceward.testing.http_suite.check_support import (
    NotShown,
    check,
    describe_response,
    require,
    require_template,
    was_replayed,
)
from onceward.testing.http_suite.execution_detector import ExecutionDetector


@check(
    "after-4xx",
    sends="a request that is refused (4xx), twice under one key, and once more when it has been repaired",
    must="the key is free again: it runs each time, and succeeds when repaired (`stripe`: the refusal is replayed)",
)
def after_4xx(witness: ExecutionDetector) -> None:
    talk = witness.talk
    asked = talk.ask(require_template(talk.target.fail_4xx, "--fail-4xx", "a request that is refused with a 4xx"))
    tally = witness.tally()
    first = talk.send(asked)
    if not 400 <= first.status < 500:
        raise NotShown(f"the request that should be refused was answered {first}")
    again = talk.again(asked)
    require(again.status == first.status, f"first {first}, and under the same key {describe_response(witness, again)}")
    if talk.expected.after_4xx == "replay":
        require(was_replayed(witness, tally, first, again), "the refusal was not remembered: it ran again")
        return
    if talk.target.repair is None:
        require(not was_replayed(witness, tally, first, again), "the refusal is replayed; the key should be free")
        return
    require(not talk.is_marked(again), "the refusal is replayed; the key should be free")
    repaired = talk.send(talk.ask(talk.target.repair, number=asked.number))
    if not repaired.succeeded:
        raise NotShown(f"the repair was answered {repaired}")
    healed = talk.again(asked)
    is_fresh = healed.succeeded and not talk.is_marked(healed)
    require(is_fresh, f"when it could succeed, it was answered {describe_response(witness, healed)}")


@check(
    "after-5xx",
    sends="a request that breaks (5xx), twice under one key",
    must="it does not run again: 409 `in_doubt`, or the marked replay (`stripe`: the replay)",
)
def after_5xx(witness: ExecutionDetector) -> None:
    talk = witness.talk
    asked = talk.ask(require_template(talk.target.fail_5xx, "--fail-5xx", "a request that breaks with a 5xx"))
    tally = witness.tally()
    first = talk.send(asked)
    if first.status < 500:
        raise NotShown(f"the request that should break was answered {first}")
    again = talk.again(asked)
    wanted = talk.expected.after_5xx
    if wanted == "run":
        is_run = not talk.is_marked(again) and (again.succeeded or again.status >= 500)
        require(
            is_run, f"under the same key it was answered {describe_response(witness, again)}; expected it to run again"
        )
        return
    if wanted == "doubt" and again.status == 409:
        require(again.code == "in_doubt" or not talk.expected.codes, f"the 409 says {again.code}; expected in_doubt")
        return
    require(not again.succeeded, f"it ran again under the same key, and was answered {again}")
    require(again.status == first.status, f"first {first}, and under the same key {describe_response(witness, again)}")
    require(was_replayed(witness, tally, first, again), "it ran again under the same key")


CHECKS = (after_4xx, after_5xx)
