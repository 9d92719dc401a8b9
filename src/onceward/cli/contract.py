"""
`onceward contract`: every choice with its value, unit and reason; what is promised; what may be refused.

Nothing is said twice: values come from the defaults themselves, reasons from the text that stands beside each of them
in the source. Durations are seconds, for programs as for people.
"""

from __future__ import annotations

import argparse
import inspect
import re
from dataclasses import fields
from functools import cache
from types import ModuleType
from typing import Any

import onceward
from onceward._core import backoff, circuit, codec, dead_letters, durations, errors, keys, record, terms
from onceward._core.classifier import Classifier
from onceward._core.durations import SECOND, format_micros
from onceward._core.errors import OncewardError
from onceward._core.record import Guarantee
from onceward._core.terms import DEFAULT_TERMS, Terms
from onceward._core.terms import DURATIONS as DURATIONS
from onceward.cli import exit_codes
from onceward.cli.command_table import GROUPS, Argument, Command
from onceward.cli.output import camel_case, print_json, print_text
from onceward.cli.profile_output import print_profile
from onceward.cli.service_output import print_service
from onceward.cli.text_tables import format_facts, format_table
from onceward.gate.call_factory import PURGE_BATCH, SCAN_PAGE
from onceward.http import PROFILES
from onceward.retry import option_checks, policy_base


def contract() -> dict[str, Any]:
    """The contract as a document."""
    return {
        "version": onceward.__version__,
        "retention": {
            "retainSeconds": _seconds(DEFAULT_TERMS.retain),
            "tombstoneSeconds": _seconds(DEFAULT_TERMS.tombstone),
            "forgetSeconds": _seconds(DEFAULT_TERMS.forget),
            "afterExpiry": DEFAULT_TERMS.after_expiry,
        },
        "choices": [_choice(field.name) for field in fields(Terms)],
        "retries": [_retry(*one) for one in _RETRIES],
        "limits": {camel_case(name): value for name, value in _limits().items()},
        "guarantees": [
            {
                "name": one.value,
                "meaning": field_docs(record, "Guarantee").get(one.name, ""),
                "default": one == DEFAULT_TERMS.guarantee,
            }
            for one in Guarantee
        ],
        "refusals": [_refusal(error) for error in _error_classes()],
    }


def _contract(args: argparse.Namespace) -> int:
    if args.config is not None and not args.service:
        raise exit_codes.UsageError("--config is the file of a service's settings: add --service, or leave it out")
    if args.service:
        if args.profile is not None:
            raise exit_codes.UsageError("a service has profiles of its own: give --service or --profile, not both")
        print_service(args.config, as_json=args.json)
        return exit_codes.FINE
    if args.profile is not None:
        print_profile(args.profile, field_docs, as_json=args.json)
        return exit_codes.FINE
    document = contract()
    if args.json:
        print_json(document)
        return exit_codes.FINE
    chosen = [
        (one["name"], _shown(one["value"]), one["unit"], one["inWords"], one["reason"]) for one in document["choices"]
    ]
    retries = [(one["name"], one["value"], one["unit"], one["reason"]) for one in document["retries"]]
    limits = [(name, value) for name, value in document["limits"].items()]
    guarantees = [(one["name"], "default" if one["default"] else "", one["meaning"]) for one in document["guarantees"]]
    refusals = [(one["code"], one["fault"], one["retry"], one["meaning"]) for one in document["refusals"]]
    print_text(f"Onceward {document['version']}: at-least-once delivery, one effect.\n\nRetention\n")
    print_text(format_facts(document["retention"].items()))
    print_text("\nChoices\n\n" + format_table(("NAME", "VALUE", "UNIT", "", "WHY"), chosen, limit=None))
    print_text(
        "\nRetries, breakers, dead letters\n\n" + format_table(("NAME", "VALUE", "UNIT", "WHY"), retries, limit=None)
    )
    print_text("\nLimits\n\n" + format_facts(limits))
    print_text(
        "\nGuarantees\n\n"
        + format_table(("NAME", "", "THE EFFECT, AND WHAT IS KNOWN AFTER A CRASH"), guarantees, limit=None)
    )
    print_text("\nRefusals\n\n" + format_table(("CODE", "FAULT", "RETRY", "MEANING"), refusals, limit=None))
    return exit_codes.FINE


def _choice(name: str) -> dict[str, Any]:
    value = getattr(DEFAULT_TERMS, name)
    is_duration = name in DURATIONS
    return {
        "name": name,
        "value": _seconds(value) if is_duration else _plain(value),
        "unit": "seconds" if is_duration else "bytes" if "bytes" in name.split("_") else None,
        "inWords": format_micros(value) if is_duration else None,
        "reason": field_docs(terms, "Terms").get(name, ""),
    }


_RETRIES: tuple[tuple[str, ModuleType, str, str | None], ...] = (
    ("attempts", option_checks, "ATTEMPTS", None),
    ("attempts_unsaid_max", option_checks, "ATTEMPTS_UNSAID_MAX", None),
    ("elapsed", policy_base, "ELAPSED", "seconds"),
    ("timeout", policy_base, "TIMEOUT", "seconds"),
    ("backoff_base", backoff, "BASE", "seconds"),
    ("backoff_cap", backoff, "CAP", "seconds"),
    ("breaker_threshold", circuit, "THRESHOLD", None),
    ("breaker_recovery", circuit, "RECOVERY", "seconds"),
    ("dead_letter_keep", dead_letters, "KEEP", "seconds"),
    ("dead_letter_payload_bytes_max", dead_letters, "PAYLOAD_BYTES_MAX", "bytes"),
)
"""What retry policies, breakers and dead letters do by default, and where that is defined."""


def _retry(name: str, module: ModuleType, constant: str, unit: str | None) -> dict[str, Any]:
    value = getattr(module, constant)
    return {
        "name": name,
        "value": _seconds(value) if module is dead_letters and unit == "seconds" else value,
        "unit": unit,
        "reason": _under(module).get(constant, ""),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return repr(value) if isinstance(value, Classifier) else value


def _limits() -> dict[str, Any]:
    return {
        "key_characters_min": 1,
        "key_characters_max": keys.KEY_CHARACTERS_MAX,
        "key_alphabet": "visible ASCII",
        "scope_characters_max": keys.SCOPE_CHARACTERS_MAX,
        "result_bytes_max": DEFAULT_TERMS.result_bytes_max,
        "result_nesting_max": codec.NESTING_MAX,
        "lease_seconds_min": _seconds(terms.LEASE_FLOOR),
        "lease_seconds_max": _seconds(terms.LEASE_CEILING),
        "duration_seconds_max": _seconds(durations.DURATION_MAX),
        "waiters_max": terms.WAITERS_MAX,
        "scan_page_records": SCAN_PAGE,
        "purge_batch_records": PURGE_BATCH,
    }


def _refusal(error: type[OncewardError]) -> dict[str, Any]:
    # The first paragraph is for everybody; what follows is about attributes in Python.
    meaning = " ".join((error.__doc__ or "").strip().partition("\n\n")[0].split())
    return {"code": error.code, "fault": error.fault.value, "retry": error.retry.value, "meaning": meaning}


def _error_classes() -> list[type[OncewardError]]:
    """Every error that has a code of its own, in the order of the source."""
    return [
        one
        for one in vars(errors).values()
        if isinstance(one, type) and issubclass(one, OncewardError) and one is not OncewardError
    ]


def _seconds(micros: int) -> int | float:
    """Whole seconds as a whole number: 86400, not 86400.0."""
    return micros // SECOND if micros % SECOND == 0 else micros / SECOND


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)


_MEMBER_AND_TEXT = re.compile(r'^    (\w+)(?:: [^\n]+)? = [^\n]+\n    """(.*?)"""', re.MULTILINE | re.DOTALL)
"""A member of a class on a line of its own, and the text under it."""


@cache
def field_docs(module: ModuleType, name: str) -> dict[str, str]:
    """
    The text that stands under each member of a class: Python has no other place for it than the source.

    Nothing, where the source was not shipped: a contract without reasons is still one.
    """
    try:
        source = inspect.getsource(module)
    except OSError:
        return {}
    body = re.split(rf"^class {name}\b.*\n", source, maxsplit=1, flags=re.MULTILINE)[1]
    body = re.split(r"^(?=\S)", body, maxsplit=1, flags=re.MULTILINE)[0]
    return {found: " ".join(words.split()) for found, words in _MEMBER_AND_TEXT.findall(body)}


_CONSTANT_AND_TEXT = re.compile(r'^([A-Z_]+) = [^\n]+\n"""(.*?)"""', re.MULTILINE | re.DOTALL)


@cache
def _under(module: ModuleType) -> dict[str, str]:
    """The text that stands under each constant of a module; see `field_docs`."""
    try:
        source = inspect.getsource(module)
    except OSError:
        return {}
    return {found: " ".join(words.split()) for found, words in _CONSTANT_AND_TEXT.findall(source)}


COMMANDS = (
    Command(
        name="contract",
        summary=GROUPS["contract"],
        run=_contract,
        arguments=(
            Argument(
                "--profile",
                "what an HTTP API with this profile promises: every field with its reason",
                choices=sorted(PROFILES),
            ),
            Argument(
                "--service",
                "what `onceward serve` publishes with the settings of --config and the environment",
                action="store_true",
            ),
            Argument("--config", "with --service: a TOML file with settings", metavar="FILE"),
        ),
        examples=(
            "onceward contract",
            "onceward contract --json",
            "onceward contract --profile stripe",
            "onceward contract --service --config serve.toml",
        ),
        exit_codes=(exit_codes.FINE, exit_codes.USAGE),
        more="What to publish to your callers, above all how long a result can be replayed (retain, in seconds).",
    ),
)
