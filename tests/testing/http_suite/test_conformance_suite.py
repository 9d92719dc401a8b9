"""What the suite says about APIs that keep their promises, and when it says that nothing is shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import reference_api
from reference_api import DESCRIPTION, Api, Refusal, Reply, serving

from onceward import ConfigurationError
from onceward.testing.http_suite import (
    CHECKS,
    PROFILES,
    CheckVerdict,
    Examination,
    TargetUnreachable,
    describe,
    examine,
)
from onceward.testing.http_suite.execution_detector import EQUAL

COUNTED = {"count_url": "/count", "count_pointer": "/runs"}


class Alike(Api):
    """Every execution answers the same."""

    def _run(self, path: str, body: bytes) -> Reply:
        reply = super()._run(path, body)
        return reply._replace(body=b'{"done": true}') if reply.status == 201 else reply


def examined(url: str, *, jobs: int = 8, only: tuple[str, ...] = (), **changes: Any) -> Examination:
    description = {**DESCRIPTION, "url": f"{url}/orders", **changes}
    return examine(
        describe({name: value for name, value in description.items() if value is not None}, {}), jobs=jobs, only=only
    )


def reasons(examination: Examination, verdict: CheckVerdict) -> dict[str, str]:
    return {finding.check.name: finding.reason for finding in examination.findings if finding.verdict is verdict}


class TestAnApiThatKeepsItsPromises:
    """Everything holds, and everything is shown."""

    @pytest.mark.parametrize("profile", PROFILES)
    def test_is_green_under_its_profile(self, profile: str) -> None:
        """
        Every check that applies to the profile holds.
        """
        with serving(profile) as (url, _):
            examination = examined(url, profile=profile)

        assert reasons(examination, CheckVerdict.BROKEN) == {}
        assert reasons(examination, CheckVerdict.NOT_SHOWN) == {}
        assert [one.name for one in CHECKS if one.applies(PROFILES[profile])] == examination.named(CheckVerdict.HOLDS)
        assert examination.holds

    def test_is_not_green_under_another_profile(self) -> None:
        """
        A profile is a claim: what keeps one breaks another.
        """
        with serving("default") as (url, _):
            examination = examined(url, profile="stripe")

        wrong = {"replay-marked", "body-changed", "query-changed", "path-changed", "large-body", "in-flight-changed"}
        wrong |= {"stripe-shape"}
        assert wrong | {"after-5xx"} == reasons(examination, CheckVerdict.BROKEN).keys()
        # Without a marker that it knows, a refusal that is told again looks like one that ran again.
        assert "after-4xx" in reasons(examination, CheckVerdict.NOT_SHOWN)

    def test_one_promise_may_be_another(self) -> None:
        """
        An API that says 423 in flight, and says so, is not blamed for it.
        """
        with serving(fault="in-flight-423") as (url, _):
            examination = examined(url, only=("in-flight",), expect={"in_flight_status": 423})

        assert examination.named(CheckVerdict.HOLDS) == ["in-flight"]


class TestExecutionsThatCannotBeToldApart:
    """What nobody can see is not called proved."""

    BLIND = {
        *("replay-equal", "unkeyed", "json-same", "body-changed-original", "large-body", "key-longest", "key-quoted"),
        *("key-case", "key-prefix", "crowd", "tenant-in-flight", "tenant-apart"),
    }

    def test_are_not_shown_and_never_hold(self) -> None:
        """
        Two executions answer alike, and there is no counter: the checks that count say so, and how to help.
        """
        with serving(kind=Alike) as (url, _):
            examination = examined(url, unique=None)

        assert dict.fromkeys(self.BLIND, EQUAL) == reasons(examination, CheckVerdict.NOT_SHOWN)
        assert reasons(examination, CheckVerdict.BROKEN) == {}

    def test_an_api_that_runs_twice_does_not_hold_by_looking_alike(self) -> None:
        """
        The worst case: it runs again each time, and its answers do not show it.
        """
        with serving(fault="runs-again", kind=Alike) as (url, _):
            examination = examined(url, unique=None)

        assert self.BLIND & {*examination.named(CheckVerdict.HOLDS)} == set()

    def test_a_counter_tells_them_apart(self) -> None:
        """
        The same API with a counter: all of it is shown.
        """
        with serving(kind=Alike) as (url, _):
            examination = examined(url, jobs=1, unique=None, **COUNTED)

        assert (reasons(examination, CheckVerdict.BROKEN), reasons(examination, CheckVerdict.NOT_SHOWN)) == ({}, {})

    def test_a_counter_sees_what_answers_hide(self) -> None:
        """
        It runs again each time with the same answer: the counter says so.
        """
        with serving(fault="runs-again", kind=Alike) as (url, _):
            examination = examined(url, jobs=1, unique=None, only=("replay-equal", "answer-lost", "crowd"), **COUNTED)

        assert reasons(examination, CheckVerdict.BROKEN) == {
            "replay-equal": "it ran 2 times",
            "answer-lost": "it ran 2 times",
            "crowd": "8 duplicates at once ran 8 times",
        }

    def test_an_api_that_refuses_the_same_request_under_another_key_says_nothing(self) -> None:
        """
        Its answers cannot be compared; the reason names the answer, and the way out.
        """

        class Picky(Api):
            def _run(self, path: str, body: bytes) -> Reply:
                number = json.loads(body)["n"]
                if number in self.repaired:
                    return Reply(409, b'{"code": "duplicate_order"}')
                self.repaired.add(number)
                return super()._run(path, body)

        with serving(kind=Picky) as (url, _):
            examination = examined(url, only=("replay-equal",))

        (reason,) = reasons(examination, CheckVerdict.NOT_SHOWN).values()
        assert "409 duplicate_order" in reason
        assert "--count-url" in reason


class TestWhatIsNotDescribed:
    """A check that needs more than it was told says what it needs."""

    def test_is_not_shown_with_the_flag_that_would_show_it(self) -> None:
        """
        With an address only: no check fails for want of a description.
        """
        needs = {
            "cut-while-running": "--slow",
            "no-content": "--no-content",
            "stream": "--stream",
            "path-changed": "--other-path",
            "in-flight": "--slow",
            "in-flight-advice": "--slow",
            "in-flight-changed": "--slow",
            "tenant-in-flight": "--other-header",
            "after-4xx": "--fail-4xx",
            "after-5xx": "--fail-5xx",
            "tenant-apart": "--other-header",
            "tenant-silent": "--other-header",
        }
        with serving() as (url, _):
            examination = examine(describe({"url": f"{url}/orders"}, {}))

        found = reasons(examination, CheckVerdict.NOT_SHOWN)
        assert needs.keys() == found.keys()
        assert [name for name, flag in needs.items() if f"give {flag}" not in found[name]] == []
        assert reasons(examination, CheckVerdict.BROKEN) == {}

    def test_a_slow_request_that_is_not_slow_shows_nothing(self) -> None:
        """
        What did not meet was not in flight.
        """
        with serving() as (url, _):
            examination = examined(url, slow={"path": "/orders"}, only=("in-flight", "cut-while-running"))

        assert reasons(examination, CheckVerdict.NOT_SHOWN).keys() == {"in-flight", "cut-while-running"}

    def test_a_body_that_is_no_json_has_no_members_to_change(self) -> None:
        """
        The checks about JSON say so; a body without `{n}` needs to be told how it changes.
        """
        with serving() as (url, _):
            target = describe({"url": f"{url}/orders", "body": "17"}, {})
            examination = examine(target, only=("json-same", "json-nan", "body-changed", "replay-equal"))

        found = reasons(examination, CheckVerdict.NOT_SHOWN)
        assert found.keys() == {"json-same", "json-nan", "body-changed"}
        assert "--changed-body" in found["body-changed"]


class TestTargetsThatCannotBeExamined:
    """They are refused before anything is judged."""

    def test_nobody_listens(self) -> None:
        """
        The address is named.
        """
        with serving() as (url, _):
            pass

        with pytest.raises(TargetUnreachable, match=url):
            examined(url)

    def test_a_plain_request_is_refused(self) -> None:
        """
        The description is wrong, and the message says what to check.
        """
        with serving() as (url, _), pytest.raises(ConfigurationError, match=r"answered 400 key_invalid.*--header"):
            examined(url, headers={"Idempotency-Key": "another"})

    def test_a_plain_request_breaks(self) -> None:
        """
        Nothing can be shown with it.
        """
        with serving() as (url, _), pytest.raises(TargetUnreachable, match="answered 500"):
            examine(describe({"url": f"{url}/broken"}, {}))

    def test_a_counter_that_counts_nothing(self) -> None:
        """
        What it answered, and which flags to check.
        """
        with serving() as (url, _), pytest.raises(ConfigurationError, match="--count-pointer"):
            examined(url, jobs=1, count_url="/count", count_pointer="/nothing")

    def test_a_pointer_that_points_at_nothing(self) -> None:
        """
        The first answer already tells.
        """
        with serving() as (url, _), pytest.raises(ConfigurationError, match="nothing at /number"):
            examined(url, unique="/number")

    def test_a_counter_and_checks_side_by_side(self) -> None:
        """
        One check's executions would be counted for another.
        """
        with serving() as (url, _), pytest.raises(ConfigurationError, match="--jobs"):
            examined(url, jobs=2, **COUNTED)

    @pytest.mark.parametrize("name", ["replay-eqal", ""])
    def test_a_check_that_does_not_exist(self, name: str) -> None:
        """
        The names that do are listed.
        """
        with pytest.raises(ConfigurationError, match="replay-equal, "):
            examined("http://127.0.0.1:1", only=(name,))

    def test_no_check_is_left(self) -> None:
        """
        A check of another profile, and nothing else.
        """
        with pytest.raises(ConfigurationError, match="no check is left"):
            examined("http://127.0.0.1:1", only=("plan-replay",))


class TestManners:
    """How it behaves towards strangers."""

    def test_a_rate_limit_is_no_fault(self) -> None:
        """
        429 is not an answer to the question that was asked.
        """

        class Limited(Api):
            def answer(self, *arguments: Any) -> Reply:
                return Reply(429) if next(self.numbers) > 30 else super().answer(*arguments)

        with serving(kind=Limited) as (url, _):
            examination = examined(url, jobs=1)

        assert reasons(examination, CheckVerdict.BROKEN) == {}
        assert any("(429)" in reason for reason in reasons(examination, CheckVerdict.NOT_SHOWN).values())

    def test_credentials_are_not_printed_even_if_the_server_repeats_them(self) -> None:
        """
        They are taken out of everything that is said.
        """

        class Telltale(Api):
            def answer(self, method: str, path: str, headers: Any, *more: Any) -> Reply:
                self.seen = headers.get("Authorization", "")
                return super().answer(method, path, headers, *more)

            def _refused(self, refusal: Refusal) -> Reply:
                return super()._refused(Refusal(418, f"because of {self.seen.split()[-1]}"))

        with serving(kind=Telltale) as (url, _):
            target = describe(
                {"url": f"{url}/orders", "headers": {"Authorization": "Bearer $TOKEN"}}, {"TOKEN": "s3cret-value"}
            )
            examination = examine(target, only=("key-empty",))

        (reason,) = reasons(examination, CheckVerdict.BROKEN).values()
        assert reason == "an empty key was answered 418 because of …; expected 400"
        assert "s3cret" not in json.dumps(examination.document()) + repr(target)

    def test_another_host_is_asked_only_with_leave(self) -> None:
        """
        A refusal may link anywhere. Without leave nobody is asked; with it the page is looked for, without credentials.
        """
        asked: list[Any] = []

        class Elsewhere(Api):
            def answer(self, method: str, path: str, headers: Any, *more: Any) -> Reply:
                asked.append((path, headers.get("Authorization")))
                return super().answer(method, path, headers, *more)

        with serving(kind=Elsewhere) as (other, _):

            class Linking(Api):
                def _refused(self, refusal: Refusal) -> Reply:
                    reply = super()._refused(refusal)
                    return reply._replace(body=reply.body.replace(b'"/problems', f'"{other}/problems'.encode()))

            with serving(kind=Linking) as (url, _):
                without = examined(url, only=("problem-link",))
                untouched = list(asked)
                followed = examined(url, only=("problem-link",), follow_links=True)

        assert untouched == []
        assert "--follow-links" in reasons(without, CheckVerdict.NOT_SHOWN)["problem-link"]
        assert followed.named(CheckVerdict.HOLDS) == ["problem-link"]
        assert asked == [("/problems/key_invalid", None), ("/problems/key_reused", None)]

    def test_two_runs_do_not_meet(self) -> None:
        """
        Keys and numbers are fresh in every run: a second run on the same server holds as well.
        """
        with serving() as (url, _):
            runs = [examined(url, only=("replay-equal", "first-unmarked", "key-case", "unkeyed")) for _ in range(2)]

        assert [run.count(CheckVerdict.HOLDS) for run in runs] == [4, 4]

    def test_progress_is_told_check_by_check(self) -> None:
        """
        Each check's name, its place, and how many there are.
        """
        told: list[Any] = []
        with serving() as (url, _):
            target = describe({"url": f"{url}/orders"}, {})
            examine(target, only=("replay-equal", "key-case"), progress=lambda *one: told.append(one))

        assert told == [("replay-equal", 1, 2), ("key-case", 2, 2)]


def test_the_suite_does_not_know_the_server() -> None:
    """
    It judges from outside: the reference API shares no code with it.
    """
    text = Path(reference_api.__file__).read_text(encoding="utf-8")

    assert "import onceward" not in text
    assert "from onceward" not in text
