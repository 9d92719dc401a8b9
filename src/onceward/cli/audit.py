"""
`onceward audit`: what operators decided, by whom and why; whether the log is what it was; whether reasons are needed.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from onceward._core.durations import SECOND
from onceward._core.errors import ConfigurationError, OncewardError
from onceward.audit import DecisionFilter, DecisionLog, DecisionView, LogFinding, LogHead, LogReport
from onceward.audit.decision_views import PAGE_MAX
from onceward.audit.log_entries import GENESIS
from onceward.cli import exit_codes
from onceward.cli.access_arguments import format_instant, tenant_name
from onceward.cli.argument_types import count_up_to, limit
from onceward.cli.command_table import Argument, Command
from onceward.cli.decisions import DECIDING, open_log, operator_of
from onceward.cli.output import camel_case, print_json, print_note, print_text
from onceward.cli.progress import progress_of
from onceward.cli.store_argument import STORE, existing_store_url, store_url
from onceward.cli.text_tables import format_table
from onceward.runtime.environment import REAL

NOT_KNOWN = "not known"
"""An intent without an outcome: the process died in between, or is deciding at this moment."""

_HEADINGS = ("NUMBER", "TIME", "ACTOR", "VIA", "ACTION", "SUBJECT", "OUTCOME", "REASON")
_UNITS = {"s": SECOND, "m": 60 * SECOND, "h": 3_600 * SECOND, "d": 86_400 * SECOND}
_AGO = re.compile(r"([0-9]{1,6})([smhd])", re.ASCII)


def _list(args: argparse.Namespace) -> int:
    """Show one page."""
    chosen = DecisionFilter(
        since_us=args.since,
        actor=args.by,
        action=args.action,
        subject=args.subject,
        tenant=args.tenant,
        before=args.after,
        limit=args.limit,
    )
    with _existing_log(args) as log:
        found = log.find(chosen)
    following = found[-1].number if len(found) == args.limit else None
    if args.json:
        print_json({"decisions": [_document(one) for one in found], "next": following})
        return exit_codes.FINE
    if found:
        print_text(format_table(_HEADINGS, map(_row, found)))
    else:
        print_note("no decisions")
    unknown = sum(one.outcome is None for one in found)
    if unknown:
        print_note(
            f"{unknown} without an outcome: nobody knows whether they were carried out. Check what they were about"
        )
    if following is not None:
        print_note(f"there may be more: continue with --after {following}")
    return exit_codes.FINE


def _row(view: DecisionView) -> tuple[object, ...]:
    outcome = view.outcome or NOT_KNOWN
    return (
        view.number,
        format_instant(view.at),
        view.actor or _erased(view),
        view.via,
        view.action,
        _short(view.subject) or _erased(view),
        f"{outcome} ({view.error})" if view.error else outcome,
        view.reason,
    )


def _short(subject: str | None) -> str | None:
    """A record's id as logs and errors show it: its digest. --json has all of it."""
    return subject[:12] if subject is not None and re.fullmatch("[0-9a-f]{64}", subject) else subject


def _erased(view: DecisionView) -> str | None:
    return "erased" if view.erased else None


def _document(view: DecisionView) -> dict[str, Any]:
    document = {camel_case(name): value for name, value in view._asdict().items()}
    return {**document, "at": format_instant(view.at), "endedAt": format_instant(view.ended_at)}


def _verify(args: argparse.Namespace) -> int:
    """Walk the log."""
    try:
        with _existing_log(args) as log, progress_of("walking the log") as progress:
            found = log.verify(args.expect, progress)
    except ConfigurationError as error:
        if args.expect is None or not args.expect.number:
            raise  # Perhaps nobody has decided anything yet; with a head that was noted, somebody has.
        missing = LogFinding(
            1, f"numbers 1 to {args.expect.number} are missing, because the whole log is missing: {error}"
        )
        found = LogReport(0, 0, LogHead(0, GENESIS), [missing])
    code = exit_codes.NO if found.findings else exit_codes.FINE
    if args.json:
        print_json(_report(found))
        return code
    if found.findings:
        rows = [(one.number or "log", one.fault) for one in found.findings]
        print_text(format_table(("NUMBER", "WHAT IS WRONG"), rows, limit=None))
        print_note(f"{len(rows)} finding{'s' if len(rows) > 1 else ''}; the first broken entry is {rows[0][0]}")
        return code
    about = f", {found.erased} with texts erased together with their tenants" if found.erased else ""
    print_text(f"every entry is as it was written: {found.entries} entries{about}\nhead {found.head}")
    print_note(
        "keep the head somewhere else: `onceward audit verify --expect HEAD` then finds entries removed from the end"
    )
    return code


def _report(found: LogReport) -> dict[str, Any]:
    return {
        "entries": found.entries,
        "erased": found.erased,
        "head": str(found.head),
        "findings": [one._asdict() for one in found.findings],
    }


def _reasons(args: argparse.Namespace) -> int:
    """Require reasons, or not."""
    if args.required is None:
        with _existing_log(args) as log:
            required = log.reasons_required()
    else:
        with open_log(existing_store_url(args)) as log:
            log.require_reasons(args.required == "required", operator_of(args))
            required = log.reasons_required()
    if args.json:
        print_json({"required": required})
    else:
        print_text(f"reasons are {'required' if required else 'optional'}")
    return exit_codes.FINE


@contextmanager
def _existing_log(args: argparse.Namespace) -> Iterator[DecisionLog]:
    with DecisionLog.open(store_url(args), create=False) as log:
        yield log


def _since(text: str) -> int:
    """An argument that is a time, or how long ago."""
    ago = _AGO.fullmatch(text)
    if ago:
        return REAL.wall_us() - int(ago[1]) * _UNITS[ago[2]]
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            "give a time such as 2026-11-17T09:00:00Z, or how long ago: 90m, 24h, 7d"
        ) from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * SECOND)


def _head(text: str) -> LogHead:
    try:
        return LogHead.parse(text)
    except OncewardError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


COMMANDS = (
    Command(
        name="audit list",
        summary="show what operators decided, newest first: who, when, why, and the outcome",
        run=_list,
        arguments=(
            Argument("--since", "only from this time on, or this long ago (90m, 24h, 7d)", metavar="TIME", type=_since),
            Argument("--actor", "only decisions by this actor", metavar="NAME", dest="by"),
            Argument("--action", "only this action, or this group of actions, such as record", metavar="ACTION"),
            Argument("--subject", "only subjects that begin like this: a digest, the id of a token", metavar="TEXT"),
            Argument("--tenant", "only decisions about this tenant", metavar="NAME", type=tenant_name),
            limit(PAGE_MAX, 50),
            Argument("--after", "continue after this number", metavar="N", type=count_up_to(10**15)),
            STORE,
        ),
        examples=("onceward audit list", "onceward audit list --action record --since 7d --json"),
        exit_codes=exit_codes.TO_LIST,
        more="A decision without an outcome may or may not have been carried out: the process died in between. "
        "--json shows the state before and after.",
    ),
    Command(
        name="audit verify",
        summary="check the whole decision log: every entry, every text, and the chain",
        run=_verify,
        arguments=(
            Argument("--expect", "a head that was printed earlier: the log must still contain it", metavar="HEAD",
                     type=_head),
            STORE,
        ),
        examples=("onceward audit verify",),
        exit_codes=exit_codes.TO_FIND,
        no="an entry was changed, added or removed",
        more="An entry that was changed, removed, added or moved is named, and the exit code is 1. It only reads.",
    ),
    Command(
        name="audit reasons",
        summary="show whether decisions need a reason; with a word, set it for everyone who decides here",
        run=_reasons,
        arguments=(
            Argument("required", "required or optional", nargs="?", choices=("required", "optional")),
            *DECIDING,
            STORE,
        ),
        examples=("onceward audit reasons", "onceward audit reasons required --reason policy-7"),
        exit_codes=exit_codes.TO_LIST,
        more="If they do, commands need --reason, and requests a member reason. Changing this is itself a decision.",
    ),
)  # fmt: skip
