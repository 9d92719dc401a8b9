"""
A run as a page of plain text: its turns, each tool call, and each attempt at it in order, in one word.

    executed    it ran, and this attempt made the effect
    replayed    it had run before; this attempt changed nothing
    refused     it was not run
    failed      it ran and raised, and had no effect that stands (paused: it asked for something first)
    unknown     nobody knows whether there is an effect
    crashed     it has no end, and its process is gone or its record is in doubt
    running     it has no end yet, as far as anybody can tell from here

An attempt without an end is looked up in the records: the journal alone cannot tell a slow tool from a dead process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from onceward._core.holders import Process
from onceward._core.record import Record, is_settled, shown_state
from onceward.cli.text_tables import escape_invisible
from onceward.journal import CallOutcome, CallView, RunView, TurnView

PAUSED = "paused"
CRASHED = "crashed"
RUNNING = "running"
IN_DOUBT = "in_doubt"

Lives = Callable[[Process], bool | None]


class ShownAttempt(NamedTuple):
    """An attempt, and the word for how it ended."""

    call: CallView
    word: str
    remark: str | None = None


def needs_record(call: CallView) -> bool:
    """Whether the record of its key says more about an attempt than its own row."""
    return call.digest is not None and (
        call.outcome in (None, CallOutcome.UNKNOWN) or (call.outcome == CallOutcome.REFUSED and call.detail == IN_DOUBT)
    )


def judge_attempts(calls: Sequence[CallView], records: Mapping[str, Record], lives: Lives) -> list[ShownAttempt]:
    """The word for each attempt; `records` by digest, as far as they are known."""
    executed = [call.digest for call in calls if call.outcome == CallOutcome.EXECUTED]
    return [_judged(call, None if call.digest is None else records.get(call.digest), executed, lives) for call in calls]


def _judged(call: CallView, found: Record | None, executed: list[str | None], lives: Lives) -> ShownAttempt:
    if call.outcome is not None:
        paused = call.outcome == CallOutcome.FAILED and (call.detail or "").startswith(f"{PAUSED}: ")
        return ShownAttempt(call, PAUSED if paused else call.outcome, call.detail)
    dead = call.process is not None and lives(call.process) is False
    if dead and found is not None and is_settled(found) and call.digest not in executed:
        return ShownAttempt(
            call, CallOutcome.EXECUTED.value, "its end was not recorded in the journal; its record is settled"
        )
    if dead and call.process is not None:
        return ShownAttempt(call, CRASHED, f"process {call.process.pid} on {call.process.host} is gone")
    if found is not None and shown_state(found) == IN_DOUBT:
        return ShownAttempt(call, CRASHED, "its record is in doubt")
    return ShownAttempt(call, RUNNING, None if call.process is None else str(call.process))


def format_run(
    run: RunView, turns: Sequence[TurnView], attempts: Sequence[ShownAttempt], records: Mapping[str, Record]
) -> str:
    """The page."""
    title = f"Run {_safe(run.id)}"
    if len(attempts) == run.attempts:  # With what the records say; otherwise there are more than were read.
        words = [one.word for one in attempts]
        run = run._replace(effects=words.count("executed"), unended=sum(map(words.count, (CRASHED, RUNNING))))
    lines = [title, "=" * len(title), *_heading(run)]
    known = {turn.seq: turn for turn in turns}
    told: set[str] = set()
    for seq in sorted({*known, *(one.call.turn for one in attempts)}, key=lambda seq: -1 if seq is None else seq):
        of_turn = [one for one in attempts if one.call.turn == seq]
        heading = "Tool calls" if seq is None else _turn_heading(seq, known.get(seq))
        lines += ["", heading, "-" * len(heading)]
        for group in _by_call(of_turn):
            lines += _call_lines(group, records, told)
    return "\n".join(lines)


def _heading(run: RunView) -> list[str]:
    times = "once" if run.begun == 1 else f"{run.begun} times"
    ended = f"; {run.status} {_when(run.finished_at)}" if run.finished_at is not None else ""
    facts = [
        f"scope {_safe(run.scope)}, worker {_safe(run.worker)}",
        f"begun {times}, first {_when(run.started_at)}{ended}; last activity {_when(run.last_at)} (UTC)",
        f"{run.attempts} attempts, {run.effects} effects, {run.unended} without an end",
    ]
    return [*facts, *([f"input {_safe(run.input_ref)}"] if run.input_ref else []),
            *([f"error {_safe(run.error)}"] if run.error else [])]  # fmt: skip


def _turn_heading(seq: int, turn: TurnView | None) -> str:
    if turn is None:
        return f"Turn {seq}"
    return f"Turn {seq} ({turn.status}{'' if turn.begun == 1 else f', begun {turn.begun} times'})"


def _by_call(attempts: Sequence[ShownAttempt]) -> list[list[ShownAttempt]]:
    """Attempts at the same call together: the same key or, without one, the model's same id."""
    groups: dict[tuple[str, str], list[ShownAttempt]] = {}
    for one in attempts:
        same = one.call.digest or one.call.call_id or one.call.id
        groups.setdefault((one.call.tool, same), []).append(one)
    return list(groups.values())


def _call_lines(group: list[ShownAttempt], records: Mapping[str, Record], told: set[str]) -> list[str]:
    first = group[0].call
    ids = dict.fromkeys(one.call.call_id for one in group if one.call.call_id is not None)
    parts = [_safe(first.tool), *(f"[{_safe(id)}]" for id in ids)]
    if first.digest is not None:
        parts.append(f"key {_safe(first.digest)}")
    lines = [" ".join(parts)]
    if first.arguments is not None:
        lines.append(f"  arguments {_safe(first.arguments)}")
    lines += [_attempt_line(number, one) for number, one in enumerate(group, 1)]
    found = None if first.digest is None else records.get(first.digest)
    if first.digest is not None and found is not None and first.digest not in told:
        told.add(first.digest)
        lines += _record_lines(first.digest, found)
    return lines


def _attempt_line(number: int, one: ShownAttempt) -> str:
    call = one.call
    took = "" if call.finished_at is None else f"{(call.finished_at - call.started_at).total_seconds():.3f} s"
    remark = "" if one.remark is None else _safe(one.remark)
    return f"  {number}. {one.word:<9} {_when(call.started_at)} {took:>10}  {remark}".rstrip()


def _record_lines(digest: str, found: Record) -> list[str]:
    """What stands in the record now, of a call whose attempts do not say it all; and how to decide what is in doubt."""
    state = shown_state(found)
    if state != IN_DOUBT:
        return [f"     its record is {state} now"]
    command = f"onceward records reconcile {digest} --fence {found.fence}"
    return [
        "     It may have happened, and will not run again until someone decides. Check whether it did. Then:",
        f"       if it happened:  {command} --happened 'RESULT AS JSON'",
        f"       if it did not:   {command} --did-not-happen",
    ]


def _when(at: datetime | None) -> str:
    return "" if at is None else at.replace(tzinfo=None).isoformat(sep=" ", timespec="milliseconds")


def _safe(text: str) -> str:
    return escape_invisible(text)
