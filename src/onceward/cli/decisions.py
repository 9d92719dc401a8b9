"""
How commands decide: who types, why, and the decision log that both go to before anything is done.
"""

from __future__ import annotations

import argparse
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from onceward.audit import CLI, Decision, DecisionLog, OpenDecision, Operator
from onceward.cli.command_table import Argument
from onceward.cli.output import print_note

ACTOR_VARIABLE = "ONCEWARD_ACTOR"

ACTOR = Argument(
    "--actor",
    "who is deciding, for the decision log; the account on this machine is added",
    metavar="NAME",
    default_text=f"${ACTOR_VARIABLE}, or the account alone",
)
DECIDING = (Argument("--reason", "why, for the decision log", metavar="TEXT"), ACTOR)
"""The arguments of every command that decides something."""


def operator_of(args: argparse.Namespace) -> Operator:
    """Whoever types the command."""
    named = args.actor or os.environ.get(ACTOR_VARIABLE, "").strip()
    account = account_name()
    return Operator(f"{named} ({account})" if named else account, CLI, args.reason)


@contextmanager
def open_log(url: str | None) -> Iterator[DecisionLog]:
    """The decision log of a store, open for the length of a `with` block."""
    with DecisionLog.open(url) as log:
        if not log.is_chained:
            print_note(
                "this store has no tables, so it keeps no decision log; this decision was only logged (logger "
                "onceward.audit)"
            )
        yield log


@contextmanager
def deciding(
    args: argparse.Namespace,
    url: str | None,
    action: str,
    subject: str,
    *,
    tenant: str | None = None,
    environment: str | None = None,
    before: Mapping[str, Any] | None = None,
) -> Iterator[OpenDecision]:
    """Write a decision down, carry it out in the block, and write down what came of it."""
    decision = Decision(action, subject, operator_of(args), tenant, environment, before)
    with open_log(url) as log, log.deciding(decision) as made:
        yield made


def account_name() -> str:
    """The account on this machine: what it really is, and not what the environment says."""
    try:
        import pwd

        name = pwd.getpwuid(os.geteuid()).pw_name
    except (ImportError, KeyError):  # No such module on Windows; no such entry in a container.
        name = str(os.geteuid()) if hasattr(os, "geteuid") else "unknown"
    return f"{name}@{socket.gethostname()}"
