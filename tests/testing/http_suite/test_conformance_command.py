"""`onceward conformance`: a table for people, a document for programs, and an exit code."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from reference_api import serving

from onceward.cli import main, progress
from onceward.testing.http_suite import CHECKS, PROFILES

TARGET = """
url = "{url}/orders"
unique = "/id"
other_path = "/refunds"

[headers]
Authorization = "Bearer $CONFORMANCE_ONE"

[other_headers]
Authorization = "Bearer $CONFORMANCE_TWO"

[slow]
path = "/slow"

[expect]
marker = "X-Never"
"""


def run(capsys: pytest.CaptureFixture[str], *typed: str) -> tuple[int, str, str]:
    code = main(["conformance", *typed])
    return (code, *capsys.readouterr())


def test_a_person_gets_a_table_and_a_count(capsys: pytest.CaptureFixture[str]) -> None:
    """
    Every check with its result and the reason; exit code 0 if all that was shown holds.
    """
    with serving() as (url, _):
        typed = (f"{url}/orders", "--unique", "/id", "--only", "replay-equal", "--only", "no-content")
        code, out, err = run(capsys, *typed)

    assert (code, err) == (0, "")
    assert out.splitlines() == [
        f"{url}/orders, profile default",
        "",
        "CHECK         RESULT     WHY",
        "replay-equal  holds",
        "no-content    not shown  give --no-content: a request that is answered 204",
        "",
        "holds: 1, does not hold: 0, not shown: 1",
    ]


def test_something_that_does_not_hold_is_exit_1(capsys: pytest.CaptureFixture[str]) -> None:
    """
    With the reason beside it.
    """
    with serving(fault="key-truncated") as (url, _):
        code, out, _ = run(capsys, f"{url}/orders", "--only", "key-prefix")

    assert code == 1
    assert "key-prefix  does not hold  a key with the same beginning got a replay" in out


def test_nothing_shown_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    """
    A run that could show nothing must not make a pipeline green.
    """
    with serving() as (url, _):
        code, _, _ = run(capsys, f"{url}/orders", "--only", "stream")

    assert code == 1


def test_a_program_gets_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    """
    The same, with what each check sends and what must hold.
    """
    with serving() as (url, _):
        code, out, _ = run(capsys, f"{url}/orders", "--json", "--only", "first-unmarked")

    (check,) = [check for check in CHECKS if check.name == "first-unmarked"]
    assert {
        "target": f"{url}/orders",
        "profile": "default",
        "holds": True,
        "counts": {"holds": 1, "doesNotHold": 0, "notShown": 0},
        "checks": [
            {"name": check.name, "verdict": "holds", "reason": "", "sends": check.sends, "must": check.must},
        ],
    } == json.loads(out)
    assert code == 0


def test_a_file_describes_the_target_and_flags_win_over_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Everything in one file; what is typed takes the place of what it says.
    """
    file = tmp_path / "target.toml"
    monkeypatch.setenv("CONFORMANCE_ONE", "first-credential")
    monkeypatch.setenv("CONFORMANCE_TWO", "second-credential")
    only = ("--only", "tenant-apart", "--only", "replay-marked", "--only", "in-flight")
    with serving() as (url, _):
        file.write_text(TARGET.format(url=url))
        by_file = run(capsys, "--target", str(file), *only)
        by_flag = run(capsys, "--target", str(file), *only, "--expect", "marker=Idempotency-Replayed", "--jobs", "4")

    assert (by_file[0], by_flag[0]) == (1, 0)
    assert "a replay has no X-Never" in by_file[1]
    assert "credential" not in "".join(map(str, by_file + by_flag))


def test_every_part_of_the_target_can_be_typed(capsys: pytest.CaptureFixture[str]) -> None:
    """
    The whole description in flags, for an API with plans.
    """
    with serving("persql") as (url, _):
        code, out, err = run(
            capsys,
            *(f"{url}/orders", "--profile", "persql", "--body", '{"n": {n}}', "--changed-body", '{"n": -{n}}'),
            *("--method", "post", "--content-type", "application/json", "--other-path", "/refunds"),
            *("--header", "Authorization: Bearer one", "--other-header", "Authorization: Bearer two"),
            *("--slow", "/slow", "--fail-4xx", "/refused", "--repair", "/repair", "--fail-5xx", "/broken"),
            *("--stream", "/stream", "--no-content", "/nothing", "--slow-body", '{"n": {n}, "slow": true}'),
            *("--unique", "/id", "--timeout", "5", "--crowd", "3", "--jobs", "8"),
        )

    assert (code, err) == (0, "")
    assert out.endswith("holds: 45, does not hold: 0, not shown: 0\n")


def test_a_counter_can_be_typed(capsys: pytest.CaptureFixture[str]) -> None:
    """
    Its address may be a path on the target.
    """
    with serving() as (url, _):
        typed = (f"{url}/orders", "--count-url", "/count", "--count-pointer", "/runs", "--only", "answer-lost")
        code, _, _ = run(capsys, *typed, "--expect", "marker=X-Never")

    assert code == 0


@pytest.mark.parametrize("profile", [None, *PROFILES])
def test_the_checks_are_listed_without_a_target(profile: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    """
    All of them, or those of a profile.
    """
    code, out, _ = run(capsys, "--list", *(() if profile is None else ("--profile", profile)), "--json")

    applying = [check for check in CHECKS if profile is None or check.applies(PROFILES[profile])]
    assert (0, [check.name for check in applying]) == (code, [check["name"] for check in json.loads(out)])


@pytest.mark.parametrize(
    ("typed", "code", "says"),
    [
        ([], 2, "no address is given"),
        (["localhost/orders"], 2, "http://host:port/path"),
        (["http://localhost:1/orders"], 4, "http://localhost:1 cannot be reached"),
        (["http://localhost:1/", "--only", "nothing"], 2, "there is no check 'nothing'"),
        (["http://localhost:1/", "--profile", "paypal"], 2, "invalid choice"),
        (["http://localhost:1/", "--header", "tok-3n"], 2, "'NAME: VALUE'"),
        (["http://localhost:1/", "--header", "A: $NOT_SET_ANYWHERE"], 2, "NOT_SET_ANYWHERE is not set"),
        (["http://localhost:1/", "--expect", "marker"], 2, "NAME=VALUE"),
        (["http://localhost:1/", "--expect", "in_flight_status=soon"], 2, "not of the right kind"),
        (["http://localhost:1/", "--expect", "mark=x"], 2, "the names are"),
        (["http://localhost:1/", "--timeout", "soon"], 2, "number of seconds"),
        (["http://localhost:1/", "--crowd", "1000"], 2, "from 1 to 64"),
        (["http://localhost:1/", "--jobs", "4", "--count-url", "/count"], 2, "leave out --jobs"),
        (["--target", "nowhere.toml"], 2, "cannot read 'nowhere.toml'"),
        (["--target", "bad.toml"], 2, "is not TOML"),
        (["--target", "flat.toml", "--slow", "/slow"], 2, "slow must be a table"),
    ],
)
def test_what_cannot_be_meant_is_one_line(
    typed: list[str], code: int, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    """
    For people a line, for programs a document, both on stderr; a header that was mistyped is not repeated.
    """
    monkeypatch.chdir(tmp_path)
    Path("bad.toml").write_text("url = ")
    Path("flat.toml").write_text('url = "http://localhost:1/"\nslow = "/slow"\n')

    text, document = run(capsys, *typed), run(capsys, *typed, "--json")

    assert (code, "", 1) == (text[0], text[1], len(text[2].splitlines()))
    assert says in text[2]
    assert "tok-3n" not in text[2]
    assert json.loads(document[2]).keys() == {"code", "message", "retry", "retryAfterSeconds"}


def test_progress_is_for_terminals(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A line that is rewritten where a person looks, and nothing in a log.
    """
    with serving() as (url, _):
        _, _, quiet = run(capsys, f"{url}/orders", "--only", "first-unmarked")
        for name in ("AFTER_SECONDS", "EVERY_SECONDS"):  # Otherwise only what takes longer than two seconds.
            monkeypatch.setattr(progress, name, 0.0)
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
        _, _, lively = run(capsys, f"{url}/orders", "--only", "first-unmarked")

    assert (quiet, "1 of 1: first-unmarked" in lively) == ("", True)
