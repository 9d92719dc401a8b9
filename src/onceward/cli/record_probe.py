"""
`onceward records decide`: decide everything in doubt by a probe, a function of yours that looks where the effect is.

First as a dry run, which decides nothing and shows what the probe says; with --yes, each record is probed again and
decided, bound to the fence that the probe was shown, with a trace of its own in the decision log. What the probe cannot
say, and what has changed meanwhile, is left as it is.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from onceward._core.codec import message_of, type_name
from onceward._core.errors import ConfigurationError, OncewardError, StoreUnavailable
from onceward._core.operation import Found, NotFound
from onceward._core.record import Record
from onceward._core.store_protocols import Store
from onceward._core.terms import DEFAULT_TERMS, apply_options
from onceward.audit import DecisionLog
from onceward.cli import exit_codes
from onceward.cli.decisions import open_log, operator_of
from onceward.cli.imported_name import import_named
from onceward.cli.output import print_json, print_note, print_text
from onceward.cli.progress import progress_of
from onceward.cli.record_listing import suggest_scope, unsettled_by_age
from onceward.cli.store_argument import open_chosen_store, store_url
from onceward.cli.text_tables import format_table, shorten
from onceward.cli.typed_command import as_typed
from onceward.gate.record_decisions import decide_record
from onceward.gate.record_view import RecordView, view
from onceward.service.access.scopes import tenant_of

HAPPENED, DID_NOT, CANNOT_SAY, FAILED, CHANGED = "happened", "did not happen", "cannot say", "probe failed", "changed"
DETAIL_MAX = 200

Probe = Callable[[RecordView], object]


class Decided(NamedTuple):
    """What the probe said of a record, and what came of it."""

    record: Record
    said: str
    detail: str = ""
    done: bool = False

    @property
    def document(self) -> dict[str, Any]:
        """As JSON."""
        seen = view(self.record)
        return {
            "digest": seen.digest,
            "scope": seen.scope,
            "operation": seen.operation,
            "fence": seen.fence,
            "said": self.said,
            "detail": self.detail,
            "decided": self.done,
        }


def decide_by_probe(args: argparse.Namespace) -> int:
    """Probe what is in doubt; with --yes, decide it."""
    if not args.all_in_doubt:
        raise exit_codes.UsageError(
            "this decides everything in doubt that the other options select. If you mean that, add --all-in-doubt"
        )
    probe = import_probe(args.probe)
    args.state = "in_doubt"
    with open_chosen_store(args) as store:
        chosen = [one for one in unsettled_by_age(store, args) if args.operation in (None, one.operation)][: args.limit]
        if not chosen and args.scope is not None:
            suggest_scope(store, args.scope)
        made = _decide_all(args, store, chosen, probe)
    _print(args, made)
    left = [one for one in made if one.said not in (HAPPENED, DID_NOT) or (args.yes and not one.done)]
    return exit_codes.NO if left else exit_codes.FINE


def _decide_all(args: argparse.Namespace, store: Store, chosen: list[Record], probe: Probe) -> list[Decided]:
    terms = DEFAULT_TERMS if args.retain is None else apply_options(DEFAULT_TERMS, {"retain": args.retain})
    made: list[Decided] = []
    operator = operator_of(args)
    with _log(args) as log, progress_of("probing") as progress:
        for number, record in enumerate(chosen):
            progress(number / len(chosen), f"{number:,} of {len(chosen):,}")
            said = _ask(probe, record)
            if isinstance(said, Decided):
                made.append(said)
                continue
            word, whose = HAPPENED if isinstance(said, Found) else DID_NOT, tenant_of(record.scope)
            if log is None:
                made.append(Decided(record, word))
                continue
            try:
                decide_record(log, store, record, said, operator, tenant=whose, fence=record.fence, terms=terms)
                made.append(Decided(record, word, done=True))
            except (StoreUnavailable, ConfigurationError):
                print_note(f"{sum(one.done for one in made)} were decided before this")
                raise
            except OncewardError as error:  # A caller came in between, or somebody else decided.
                made.append(Decided(record, CHANGED, shorten(str(error), DETAIL_MAX)))
    return made


def _log(args: argparse.Namespace) -> AbstractContextManager[DecisionLog | None]:
    """The decision log; None in a dry run, which has nothing to write."""
    return open_log(store_url(args)) if args.yes else nullcontext()


def _ask(probe: Probe, record: Record) -> Found | NotFound | Decided:
    """What the probe says of a record; what cannot be decided by it, as it is to be shown."""
    try:
        said = probe(view(record))
    except Exception as error:  # A probe is not ours; what it raises is about one record, and the others are asked.
        return Decided(record, FAILED, shorten(f"{type_name(type(error))}: {message_of(error)}", DETAIL_MAX))
    if isinstance(said, Found | NotFound):
        return said
    detail = (
        "" if said is None else f"the probe returned {type(said).__name__}: return Found(result), NOT_FOUND or None"
    )
    return Decided(record, CANNOT_SAY, detail)


def _print(args: argparse.Namespace, made: list[Decided]) -> None:
    counts = Counter(one.said for one in made)
    if args.json:
        print_json({"dryRun": not args.yes, "counts": dict(counts), "records": [one.document for one in made]})
        return
    if not made:
        print_note("nothing is in doubt")
        return
    rows = []
    for one in made:
        seen = view(one.record)
        rows.append(
            (seen.digest, seen.fence, seen.scope, seen.operation, one.said, "yes" if one.done else "", one.detail)
        )
    print_text(format_table(("DIGEST", "FENCE", "SCOPE", "OPERATION", "PROBE", "DECIDED", "DETAIL"), rows))
    said = ", ".join(f"{count} {word}" for word, count in counts.items())
    if args.yes:
        print_note(f"{sum(one.done for one in made)} decided ({said})")
    else:
        print_note(f"a dry run: nothing was decided ({said}). To decide, run the same command with --yes:")
        scope = f" --scope {args.scope}" if args.scope else ""
        print_note(f"  {as_typed(f'onceward records decide --probe {args.probe} --all-in-doubt{scope} --yes', args)}")


def import_probe(path: str) -> Probe:
    """The function that MODULE:FUNCTION names."""
    found = import_named("--probe", path, "a function that takes a record")
    if not callable(found):
        raise ConfigurationError(f"--probe {path} is a {type(found).__name__}; name a function that takes a record")
    probe: Probe = found
    return probe
