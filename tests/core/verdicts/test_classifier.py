"""The classifier as a value: what it can be taught, what it looks through, and what it survives."""

from __future__ import annotations

import gc
import http.client
import sqlite3
import weakref
from pathlib import Path
from typing import Any

import pytest
import stamina
import tenacity
from hypothesis import given
from hypothesis import strategies as st

from onceward import ConfigurationError, OncewardError
from onceward._core import errors
from onceward._core.classifier import DEFAULT, DEPTH_MAX
from onceward._core.verdict_tables.onceward_errors import CODES, NEEDS_SOMEBODY
from onceward.errors import RecordedFailure
from onceward.verdicts import Action, Certainty, Classifier, Kind, Verdict

REJECTED = Verdict(Certainty.REJECTED, Kind.CLIENT, Action.NEVER)
UNKNOWN = (Certainty.UNKNOWN, Kind.OTHER, Action.NEVER)


class Declined(Exception):
    """A provider's error."""


class Fraud(Declined):
    """A more specific one."""


class TestTeaching:
    """`extended`: by type, without subclassing."""

    def test_the_most_specific_type_wins(self) -> None:
        """
        Whatever the order in which they were taught.
        """
        fraud = Verdict(Certainty.REJECTED, Kind.AUTH, Action.ESCALATE)
        taught = Classifier().extended({Fraud: fraud}).extended({Declined: REJECTED, Exception: Verdict(*UNKNOWN)})

        assert fraud == taught.judge(Fraud())
        assert taught.judge(Declined()) == REJECTED

    def test_it_makes_another_and_changes_nothing(self) -> None:
        """
        A classifier is a value.
        """
        before = Classifier()
        after = before.extended({Declined: REJECTED})

        assert (before.judge(Declined())[:3], after.judge(Declined())) == (UNKNOWN, REJECTED)
        assert DEFAULT.judge(Declined())[:3] == UNKNOWN

    def test_a_taught_type_counts_before_what_is_known(self) -> None:
        """
        Also for types of the standard library, and for a status.
        """
        done = Verdict(Certainty.DONE, Kind.OTHER, Action.NEVER)

        class Answer(Exception):
            status_code = 503

        taught = Classifier({ConnectionResetError: done, Answer: done})

        assert [done, done] == [taught.judge(ConnectionResetError()), taught.judge(Answer())]
        assert Certainty.UNKNOWN is taught.judge(BrokenPipeError()).certainty

    def test_a_function_looks_closer_or_passes(self) -> None:
        """
        None means "I do not know": the next in line is asked.
        """
        taught = Classifier(
            {Fraud: lambda error: REJECTED if error.args else None, Declined: Verdict(*UNKNOWN, code="declined")}
        )

        assert taught.judge(Fraud("stolen")) == REJECTED
        assert taught.judge(Fraud()).code == "declined"

    def test_what_was_taught_is_found_inside_wrappers(self) -> None:
        """
        A wrapper that is known is looked through with everything that is known.
        """
        import urllib.error

        wrapper = urllib.error.URLError(Fraud())  # type: ignore[arg-type]

        assert REJECTED[:3] == Classifier({Declined: REJECTED}).judge(wrapper)[:3]

    @pytest.mark.parametrize("lesson", [lambda error: 1 / 0, lambda error: "released", lambda error: True])
    def test_a_function_that_fails_leaves_nothing_known(self, lesson: Any) -> None:
        """
        Careful: what should have been known better is not judged by the rest of the table either.
        """
        verdict = Classifier({ConnectionRefusedError: lesson}).judge(ConnectionRefusedError())

        assert verdict == (*UNKNOWN, None, "lesson_failed")

    @pytest.mark.parametrize("taught", [{"Declined": REJECTED}, {Declined: "never"}, {Declined: None}, {Declined: 7}])
    def test_a_bad_lesson_is_refused_when_it_is_given(self, taught: Any) -> None:
        """
        And says what would do.
        """
        with pytest.raises(ConfigurationError):
            Classifier(taught)
        with pytest.raises(ConfigurationError):
            DEFAULT.extended(taught)

    def test_types_made_at_run_time_are_not_kept(self) -> None:
        """
        What is remembered about a type goes with it.
        """
        passing = type("Passing", (Exception,), {})
        DEFAULT.judge(passing())
        seen = weakref.ref(passing)
        del passing
        gc.collect()

        assert seen() is None


class TestLookingThrough:
    """Wrappers that are known are looked through; others are not."""

    def test_an_unknown_wrapper_is_unknown(self) -> None:
        """
        Somebody's own error after a refused connection may be about something else entirely.
        """
        error = Declined()
        error.__cause__ = ConnectionRefusedError()

        assert DEFAULT.judge(error)[:3] == UNKNOWN

    def test_a_ring_of_causes_ends(self) -> None:
        """
        Two wrappers that wrap each other.
        """
        import urllib.error

        one, two = urllib.error.URLError("a"), urllib.error.URLError("b")
        one.reason, two.reason = two, one  # type: ignore[assignment]

        assert DEFAULT.judge(one)[:3] == UNKNOWN

    def test_a_chain_that_is_too_deep_ends(self) -> None:
        """
        There is a bound, and within it the reason is found.
        """
        import urllib.error

        def wrapped(depth: int) -> Exception:
            error: Exception = ConnectionRefusedError()
            for _ in range(depth):
                error = urllib.error.URLError(error)  # type: ignore[arg-type]
            return error

        assert Certainty.NOT_SENT is DEFAULT.judge(wrapped(DEPTH_MAX)).certainty
        assert DEFAULT.judge(wrapped(DEPTH_MAX + 1))[:3] == UNKNOWN
        assert DEFAULT.judge(wrapped(10_000))[:3] == UNKNOWN


class TestBareErrors:
    """Without a traceback, without a wrapper: types alone."""

    @pytest.mark.parametrize(
        ("error", "certainty", "action"),
        [
            (ConnectionRefusedError(), Certainty.NOT_SENT, Action.SAME_KEY),
            (ConnectionResetError(), Certainty.UNKNOWN, Action.SAME_KEY),
            (BrokenPipeError(), Certainty.UNKNOWN, Action.SAME_KEY),
            (TimeoutError(), Certainty.UNKNOWN, Action.SAME_KEY),
            (http.client.RemoteDisconnected(), Certainty.UNKNOWN, Action.SAME_KEY),
            (http.client.CannotSendRequest(), Certainty.NOT_SENT, Action.NEVER),
            (sqlite3.IntegrityError(), Certainty.REJECTED, Action.NEVER),
            (sqlite3.OperationalError(), Certainty.UNKNOWN, Action.NEVER),
            (OSError(28, "no space left"), Certainty.UNKNOWN, Action.NEVER),
            (KeyboardInterrupt(), Certainty.UNKNOWN, Action.NEVER),
            (SystemExit(), Certainty.UNKNOWN, Action.NEVER),
            (ExceptionGroup("", [ConnectionRefusedError(), KeyError()]), Certainty.UNKNOWN, Action.NEVER),
            (
                ExceptionGroup("", [ConnectionRefusedError(), sqlite3.IntegrityError()]),
                Certainty.REJECTED,
                Action.NEVER,
            ),
        ],
        ids=repr,
    )
    def test_what_a_type_alone_says(self, error: BaseException, certainty: Certainty, action: Action) -> None:
        """
        A reset or a timeout can come at any time: alone, it proves nothing.
        """
        assert (certainty, action) == DEFAULT.judge(error)[0:3:2]

    def test_a_locked_sqlite_file_was_not_written(self, tmp_path: Path) -> None:
        """
        SQLITE_BUSY, from two real connections.
        """
        one, two = (sqlite3.connect(tmp_path / "a.db", timeout=0, isolation_level=None) for _ in range(2))
        one.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError) as caught:
            two.execute("BEGIN IMMEDIATE")
        one.close()
        two.close()

        assert DEFAULT.judge(caught.value)[:3] == (Certainty.REJECTED, Kind.STATE, Action.SAME_KEY)


class TestOurOwnErrors:
    """Code, advice and wait go straight through."""

    OWN = [
        one
        for one in vars(errors).values()
        if isinstance(one, type) and issubclass(one, OncewardError) and one is not OncewardError
    ]

    @pytest.mark.parametrize("kind", OWN, ids=lambda kind: kind.code)
    def test_the_table_and_the_class_advise_the_same(self, kind: Any) -> None:
        """
        Every code of ours is in the table, and over HTTP it means what it means in Python. Where somebody has to mend
        something first, no retry loop goes on by itself; the advice says which key is good afterwards.
        """
        action = CODES[kind.code].action

        if action in NEEDS_SOMEBODY:
            assert kind.retry.value in (Action.NEVER, Action.SAME_KEY)
            assert DEFAULT.judge(kind()).action is action
        else:
            assert kind.retry.value == action.value

    @pytest.mark.parametrize(
        ("error", "certainty"),
        [
            (errors.InFlight(retry_after_seconds=0.5), Certainty.UNKNOWN),
            (errors.InDoubt(), Certainty.UNKNOWN),
            (errors.Expired(), Certainty.DONE),
            (errors.NotReplayable(), Certainty.DONE),
            (errors.Unrecorded(), Certainty.DONE),
            (errors.KeyReused(), Certainty.REJECTED),
            (errors.StoreUnavailable(retry_after_seconds=2), Certainty.NOT_SENT),
            (RecordedFailure("ValueError", "no"), Certainty.UNKNOWN),
        ],
        ids=lambda value: getattr(value, "code", str(value)),
    )
    def test_an_error_of_ours(self, error: OncewardError, certainty: Certainty) -> None:
        """
        What it says of the effect, what it advises, how long it asks for.
        """
        verdict = DEFAULT.judge(error)

        assert certainty is verdict.certainty
        assert (error.retry.value, error.retry_after_seconds, error.code) == (
            verdict.action.value,
            verdict.wait,
            verdict.code,
        )

    def test_one_that_is_not_known_yet_is_careful(self) -> None:
        """
        A later version's error: its own advice, and nothing about the effect.
        """

        class Later(OncewardError):
            code = "later"
            retry = errors.RetryAdvice.SAME_KEY

        assert DEFAULT.judge(Later()) == (Certainty.UNKNOWN, Kind.OTHER, Action.SAME_KEY, None, "later")


class Hostile(Exception):
    """Everything about it raises."""

    def __str__(self) -> str:
        raise RuntimeError

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


class TestHostileThings:
    """Errors and responses are other people's objects."""

    def test_an_error_whose_attributes_raise_is_judged(self) -> None:
        """
        Nothing is known about it, and nothing breaks.
        """
        assert DEFAULT.judge(Hostile())[:3] == UNKNOWN

    @pytest.mark.parametrize("base", [ConnectionRefusedError, errors.StoreUnavailable, ExceptionGroup, TimeoutError])
    def test_also_if_it_is_of_a_known_type(self, base: Any) -> None:
        """
        Known by its type where the type is enough.
        """
        kind = type("Odd", (base,), {"__getattribute__": Hostile.__getattribute__, "__str__": Hostile.__str__})
        error = kind("odd", [KeyError()]) if base is ExceptionGroup else kind("odd")

        assert (base is ConnectionRefusedError) is (DEFAULT.judge(error).happened is False)

    @pytest.mark.parametrize(
        "content", [b"{", b"{" * 60_000, b'{"code": 7}', b'{"code": ""}', b"[]", b"{" + b" " * 99_999]
    )
    def test_a_body_that_is_not_ours_says_nothing(self, content: bytes) -> None:
        """
        Broken, deep, of other types or too long: the status stands alone.
        """

        class Response:
            status_code = 409
            headers: Any = None
            _content = content

        assert DEFAULT.judge(Response())[2:5:2] == (Action.NEVER, "409")

    def test_a_body_that_has_not_been_read_is_not_read(self) -> None:
        """
        `.json()` and `.content` might wait for the network; only what is in memory is looked at.
        """

        class Response:
            status_code = 409

            def json(self) -> Any:
                raise AssertionError("was read")

            @property
            def content(self) -> Any:
                raise AssertionError("was read")

        assert DEFAULT.judge(Response()).code == "409"

    @given(st.one_of(st.none(), st.integers(), st.text(), st.binary(), st.lists(st.integers()), st.builds(object)))
    def test_anything_at_all_gets_a_verdict(self, thing: Any) -> None:
        """
        What is no failure of any known kind is unknown.
        """
        assert DEFAULT.judge(thing)[:3] == UNKNOWN


class TestOtherPeoplesLoops:
    """`retryable` as the predicate of the libraries that people already use."""

    @pytest.mark.parametrize(("keyed", "calls"), [(True, 3), (False, 2)])
    def test_tenacity_stops_where_the_outcome_is_unknown_and_there_is_no_key(self, keyed: bool, calls: int) -> None:
        """
        Refused, then reset: with a key it goes on, without one it stops and raises.
        """
        script: list[Any] = [ConnectionRefusedError(), ConnectionResetError(), "ch_1"]
        made = []

        @tenacity.retry(
            retry=tenacity.retry_if_exception(lambda error: DEFAULT.retryable(error, keyed=keyed)),
            stop=tenacity.stop_after_attempt(5),
            wait=tenacity.wait_none(),
            reraise=True,
        )
        def charge() -> Any:
            made.append(script.pop(0))
            if isinstance(made[-1], Exception):
                raise made[-1]
            return made[-1]

        if keyed:
            assert charge() == "ch_1"
        else:
            with pytest.raises(ConnectionResetError):
                charge()
        assert calls == len(made)

    @pytest.mark.parametrize(("keyed", "calls"), [(True, 3), (False, 2)])
    def test_stamina_stops_there_too(self, keyed: bool, calls: int) -> None:
        """
        The same predicate, as its `on`.
        """
        script: list[Any] = [ConnectionRefusedError(), ConnectionResetError(), "ch_1"]
        made = []

        def hook(error: Exception) -> bool:
            return DEFAULT.retryable(error, keyed=keyed)

        @stamina.retry(on=hook, attempts=5, wait_initial=0, wait_jitter=0, wait_max=0)
        def charge() -> Any:
            made.append(script.pop(0))
            if isinstance(made[-1], Exception):
                raise made[-1]
            return made[-1]

        if keyed:
            assert charge() == "ch_1"
        else:
            with pytest.raises(ConnectionResetError):
                charge()
        assert calls == len(made)
