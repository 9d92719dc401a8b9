"""
`onceward conformance`: what holds of an HTTP API's idempotency, seen from outside. Needs no store.
"""

from __future__ import annotations

import argparse
import os
import sys
import tomllib
from pathlib import Path
from typing import Any

from onceward.cli import exit_codes
from onceward.cli.command_parser import CommandGroup, CommandParser, add_command, count_up_to, seconds
from onceward.cli.output import print_json, print_text
from onceward.cli.text_tables import format_table
from onceward.testing.http_suite import CHECKS, PROFILES, CheckVerdict, Examination, describe, examine
from onceward.testing.http_suite.examination import JOBS_MAX
from onceward.testing.http_suite.target import BODY, CROWD, CROWD_MAX, SECONDS, WELL_KNOWN

_MORE = """\
Every case has fresh keys and a fresh number for {n} in paths and bodies. Nothing is undone afterwards: name a test
environment. In headers $NAME is taken from the environment, and what is taken is never printed.
"""

# The names in a target's description, and of the flags that win over it.
_TEXTS = {
    "method": ("METHOD", "of the request (POST)"),
    "body": ("BODY", f"of the request; {{n}} is a fresh number ({BODY})"),
    "changed_body": ("BODY", "another request's body, for the same path (the body with another {n})"),
    "content_type": ("TYPE", "of the bodies (application/json)"),
    "other_path": ("PATH", "another path that takes the same body"),
    "well_known": ("PATH", f"where the rules are published ({WELL_KNOWN})"),
    "unique": ("POINTER", "JSON pointer to what differs between executions, such as /id (the whole body)"),
    "count_url": ("URL", "where the number of executions can be read"),
    "count_pointer": ("POINTER", "JSON pointer to that number"),
}
_SHAPES = {
    "slow": "a request that takes half a second or more",
    "fail_4xx": "a request that is refused with a 4xx",
    "repair": "a request after which that one succeeds; {n} is the same in both",
    "fail_5xx": "a request that breaks with a 5xx",
    "stream": "a request whose answer is streamed",
    "no_content": "a request that is answered 204",
}


def add_to(parsers: CommandGroup) -> None:
    """Declare the command."""
    command = add_command(
        parsers,
        "conformance",
        "examine any HTTP API that claims idempotency, from outside: what holds, what does not, what is not shown",
        _conformance,
        examples=(
            "onceward conformance --list",
            "onceward conformance --list --profile ietf",
            "onceward conformance http://localhost:1/orders --profile stripe --unique /id  # exit 4",
        ),
        codes=(exit_codes.FINE, exit_codes.NO, exit_codes.USAGE, exit_codes.STORE),
        more=_MORE,
    )
    command.add_argument("url", nargs="?", metavar="URL", help="where requests are sent: http://host:port/path")
    command.add_argument("--target", type=Path, metavar="FILE", help="a description of the target, in TOML")
    command.add_argument("--profile", choices=tuple(PROFILES), help="what the API promises (default)")
    command.add_argument("--expect", action="append", default=[], metavar="NAME=VALUE", help="one promise changed")
    command.add_argument("--list", action="store_true", help="list the checks, and send nothing")
    command.add_argument(
        "--only", action="append", default=[], metavar="CHECK", help="make this check; may be repeated"
    )
    command.add_argument("--skip", action="append", default=[], metavar="CHECK", help="leave it out; may be repeated")
    command.add_argument("--timeout", type=seconds, metavar="SECONDS", help=f"for one exchange ({SECONDS:g})")
    command.add_argument("--crowd", type=count_up_to(CROWD_MAX), metavar="N", help=f"duplicates at once ({CROWD})")
    command.add_argument("--jobs", type=count_up_to(JOBS_MAX), default=1, metavar="N", help="checks side by side (1)")
    command.add_argument("--follow-links", action="store_true", help="ask other hosts that refusals link to")
    _add_description(command)


def _add_description(command: CommandParser) -> None:
    target = command.add_argument_group(
        "the target",
        "The file has the same names with _ for -, and tables [headers], [other_headers], [slow] ..., [expect].",
    )
    target.add_argument(
        "--header", action="append", default=[], metavar="'NAME: VALUE'", help="sent with every request"
    )
    target.add_argument(
        "--other-header", action="append", default=[], metavar="'NAME: VALUE'", help="another tenant's, in their place"
    )
    for name, (metavar, what) in _TEXTS.items():
        target.add_argument(_flag(name), metavar=metavar, help=what)
    for name, what in _SHAPES.items():
        target.add_argument(_flag(name), metavar="PATH", help=what)
        target.add_argument(f"{_flag(name)}-body", metavar="BODY", help="its body, if it is another")


def _conformance(asked: argparse.Namespace) -> int:
    if asked.list:
        return _list(asked)
    target = describe(_description(asked), os.environ)
    examination = examine(target, only=asked.only, skip=asked.skip, jobs=asked.jobs, progress=_show_progress)
    if asked.json:
        print_json(examination.document())
    else:
        _tell(examination)
    return exit_codes.FINE if examination.holds else exit_codes.NO


def _list(asked: argparse.Namespace) -> int:
    expected = None if asked.profile is None else PROFILES[asked.profile]
    checks = [check for check in CHECKS if expected is None or check.applies(expected)]
    if asked.json:
        print_json([{"name": check.name, "sends": check.sends, "must": check.must} for check in checks])
    else:
        print_text(format_table(("CHECK", "MUST HOLD"), [(check.name, check.must) for check in checks], limit=None))
    return exit_codes.FINE


def _description(asked: argparse.Namespace) -> dict[str, Any]:
    """The file's description, with what was typed put over it."""
    found = {} if asked.target is None else _read(asked.target)
    plain = ("url", "profile", "timeout", "crowd", *_TEXTS)
    found |= {name: value for name in plain if (value := getattr(asked, name)) is not None}
    for name in _SHAPES:
        path, body = getattr(asked, name), getattr(asked, f"{name}_body")
        typed = {part: text for part, text in (("path", path), ("body", body)) if text is not None}
        if typed:
            found[name] = _table(found, name) | typed
    for name, lines in (("headers", asked.header), ("other_headers", asked.other_header)):
        if lines:
            found[name] = _table(found, name) | dict(_header(line) for line in lines)
    if asked.expect:
        found["expect"] = _table(found, "expect") | dict(_expectation(found, text) for text in asked.expect)
    return found | ({"follow_links": True} if asked.follow_links else {})


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise exit_codes.UsageError(f"--target: cannot read {str(file)!r}: {reason}") from None
    except tomllib.TOMLDecodeError as error:
        raise exit_codes.UsageError(f"--target: {str(file)!r} is no TOML: {error}") from None


def _table(found: dict[str, Any], name: str) -> dict[str, Any]:
    known = found.get(name, {})
    if not isinstance(known, dict):
        raise exit_codes.UsageError(f"--target: {name} must be a table")
    return known


def _header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not name.strip():
        # The line may be a credential by itself: it is not repeated.
        raise exit_codes.UsageError("a header is written 'NAME: VALUE'")
    return name.strip(), value.strip()


def _expectation(found: dict[str, Any], text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise exit_codes.UsageError(f"--expect takes NAME=VALUE, not {text!r}")
    profile = PROFILES.get(str(found.get("profile", "default")), PROFILES["default"])
    return name.strip(), profile.read(name.strip(), value.strip())


def _show_progress(name: str, begun: int, checks: int) -> None:
    # Rewriting a line is for people only; a log gets nothing.
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{begun} of {checks}: {name}\r" + ("\x1b[K" if begun == checks else ""))
        sys.stderr.flush()


def _tell(examination: Examination) -> None:
    print_text(f"{examination.address}, profile {examination.profile}\n")
    rows = [(finding.check.name, finding.verdict.value, finding.reason) for finding in examination.findings]
    print_text(format_table(("CHECK", "RESULT", "WHY"), rows, limit=None))
    print_text("\n" + ", ".join(f"{verdict.value}: {examination.count(verdict)}" for verdict in CheckVerdict))


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
