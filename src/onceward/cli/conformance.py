"""
`onceward conformance`: check from outside what an HTTP API promises about retries. Needs no store.
"""

from __future__ import annotations

import argparse
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from onceward.cli import exit_codes
from onceward.cli.argument_types import count_up_to, seconds
from onceward.cli.command_table import GROUPS, Argument, Command, Section
from onceward.cli.output import print_json, print_text
from onceward.cli.progress import progress_of
from onceward.cli.text_tables import format_table
from onceward.testing.http_suite import CHECKS, PROFILES, CheckVerdict, Examination, describe, examine
from onceward.testing.http_suite.examination import JOBS_MAX
from onceward.testing.http_suite.target import BODY, CROWD, CROWD_MAX, SECONDS, WELL_KNOWN

_MORE = """\
Every case has fresh keys and a fresh number for {n} in paths and bodies. Nothing is undone afterwards, so name a test
environment. In headers $NAME is taken from the environment, and its value is never printed.
"""

# The names in a target's description; flags of the same name win over it. With metavar, help and default.
_TEXTS = (
    ("method", "METHOD", "the request's method", "POST"),
    ("body", "BODY", "the request's body; {n} is a fresh number", BODY),
    ("changed_body", "BODY", "a different body, for the same path", "the body with another {n}"),
    ("content_type", "TYPE", "the content type of the bodies", "application/json"),
    ("other_path", "PATH", "another path that takes the same body", ""),
    ("well_known", "PATH", "where the rules are published", WELL_KNOWN),
    ("unique", "POINTER", "JSON pointer to a value that differs between executions, such as /id", "the whole body"),
    ("count_url", "URL", "where the number of executions can be read", ""),
    ("count_pointer", "POINTER", "JSON pointer to that number", ""),
)
_SHAPES = {
    "slow": "a request that takes half a second or more",
    "fail_4xx": "a request that is refused with a 4xx",
    "repair": "a request after which the refused one succeeds; {n} is the same in both",
    "fail_5xx": "a request that fails with a 5xx",
    "stream": "a request whose response is streamed",
    "no_content": "a request whose response is a 204",
}


def _conformance(args: argparse.Namespace) -> int:
    if args.list:
        return _list(args)
    target = describe(_description(args), os.environ)
    with progress_of("checking") as line:

        def progress(name: str, begun: int, checks: int) -> None:
            line((begun - 1) / checks, f"{begun} of {checks}: {name}")

        examination = examine(target, only=args.only, skip=args.skip, jobs=args.jobs, progress=progress)
    if args.json:
        print_json(examination.document())
    else:
        _print_examination(examination)
    return exit_codes.FINE if examination.holds else exit_codes.NO


def _list(args: argparse.Namespace) -> int:
    expected = None if args.profile is None else PROFILES[args.profile]
    checks = [check for check in CHECKS if expected is None or check.applies(expected)]
    if args.json:
        print_json([{"name": check.name, "sends": check.sends, "must": check.must} for check in checks])
    else:
        print_text(format_table(("CHECK", "MUST HOLD"), [(check.name, check.must) for check in checks], limit=None))
    return exit_codes.FINE


def _description(args: argparse.Namespace) -> dict[str, Any]:
    """The file's description, with what was typed put over it."""
    description = {} if args.target is None else _read(args.target)
    plain = ("url", "profile", "timeout", "crowd", *(name for name, *_ in _TEXTS))
    description |= {name: value for name in plain if (value := getattr(args, name)) is not None}
    for name in _SHAPES:
        path, body = getattr(args, name), getattr(args, f"{name}_body")
        typed = {part: text for part, text in (("path", path), ("body", body)) if text is not None}
        if typed:
            description[name] = _table(description, name) | typed
    for name, lines in (("headers", args.header), ("other_headers", args.other_header)):
        if lines:
            description[name] = _table(description, name) | dict(_header(line) for line in lines)
    if args.expect:
        changed = dict(_expectation(description, text) for text in args.expect)
        description["expect"] = _table(description, "expect") | changed
    return description | ({"follow_links": True} if args.follow_links else {})


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise exit_codes.UsageError(f"--target: cannot read {str(file)!r}: {reason}") from None
    except tomllib.TOMLDecodeError as error:
        raise exit_codes.UsageError(f"--target: {str(file)!r} is not TOML: {error}") from None


def _table(description: dict[str, Any], name: str) -> dict[str, Any]:
    known = description.get(name, {})
    if not isinstance(known, dict):
        raise exit_codes.UsageError(f"--target: {name} must be a table")
    return known


def _header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not name.strip():
        # The line may be a credential by itself: it is not repeated.
        raise exit_codes.UsageError("a header is written 'NAME: VALUE'")
    return name.strip(), value.strip()


def _expectation(description: dict[str, Any], text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise exit_codes.UsageError(f"--expect takes NAME=VALUE, not {text!r}")
    profile = PROFILES.get(str(description.get("profile", "default")), PROFILES["default"])
    return name.strip(), profile.read(name.strip(), value.strip())


def _print_examination(examination: Examination) -> None:
    print_text(f"{examination.address}, profile {examination.profile}\n")
    rows = [(finding.check.name, finding.verdict.value, finding.reason) for finding in examination.findings]
    print_text(format_table(("CHECK", "RESULT", "WHY"), rows, limit=None))
    print_text("\n" + ", ".join(f"{verdict.value}: {examination.count(verdict)}" for verdict in CheckVerdict))


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


_TARGET = Section(
    "the target",
    "The file has the same names with _ for -, and tables [headers], [other_headers], [slow] ..., [expect].",
)


def _target_arguments() -> Iterator[Argument]:
    """One flag for each name in a target's description."""
    for name, metavar, help, default in _TEXTS:
        yield Argument(_flag(name), help, metavar=metavar, default_text=default, section=_TARGET)
    for name, help in _SHAPES.items():
        yield Argument(_flag(name), help, metavar="PATH", section=_TARGET)
        yield Argument(f"{_flag(name)}-body", "its body, if it is another", metavar="BODY", section=_TARGET)


COMMANDS = (
    Command(
        name="conformance",
        summary=GROUPS["conformance"],
        run=_conformance,
        arguments=(
            Argument("url", "where requests are sent: http://host:port/path", nargs="?", metavar="URL"),
            Argument("--target", "a description of the target, in TOML", type=Path, metavar="FILE"),
            Argument("--profile", "what the API promises", choices=tuple(PROFILES), default_text="default"),
            Argument(
                "--expect", "change one promise; may be repeated", action="append", default=[], metavar="NAME=VALUE"
            ),
            Argument("--list", "list the checks, and send nothing", action="store_true"),
            Argument("--only", "run only this check; may be repeated", action="append", default=[], metavar="CHECK"),
            Argument("--skip", "skip this check; may be repeated", action="append", default=[], metavar="CHECK"),
            Argument("--timeout", "for one exchange", type=seconds, metavar="SECONDS", default_text=f"{SECONDS:g} s"),
            Argument(
                "--crowd",
                "how many duplicates at once",
                type=count_up_to(CROWD_MAX),
                metavar="N",
                default_text=f"{CROWD}",
            ),
            Argument("--jobs", "how many checks at once", type=count_up_to(JOBS_MAX), default=1, metavar="N"),
            Argument("--follow-links", "also follow links in error responses to other hosts", action="store_true"),
            Argument(
                "--header",
                "sent with every request; may be repeated",
                action="append",
                default=[],
                metavar="'NAME: VALUE'",
                section=_TARGET,
            ),
            Argument(
                "--other-header",
                "another tenant's header, in place of the first; may be repeated",
                action="append",
                default=[],
                metavar="'NAME: VALUE'",
                section=_TARGET,
            ),
            *_target_arguments(),
        ),
        examples=(
            "onceward conformance --list",
            "onceward conformance --list --profile ietf",
            "onceward conformance http://localhost:1/orders --profile stripe --unique /id  # exit 4",
        ),
        exit_codes=exit_codes.TO_FIND,
        no="a check fails",
        more=_MORE,
    ),
)
