"""What a policy promises: when it tries again, when it stops, what it says then."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from retry_support import REFUSED, UNKNOWN, Answer, Failed, Says, Script, Sleepless

from onceward import (
    NOT_FOUND,
    BudgetExhausted,
    CircuitOpen,
    ConfigurationError,
    DeadlineExceeded,
    Found,
    Gate,
    OutcomeUnknown,
    Retry,
    deadline,
    stop_of,
)
from onceward._core.classifier import DEFAULT, Classifier
from onceward._core.verdict import Action, Certainty, Kind, Verdict
from onceward.errors import RateLimitError
from onceward.retry import Attempt, Breaker, Budget, GivenUp, Stop, StopReason
from onceward.stores import open_store
from onceward.testing import no_sleeping, retries_off


def reason(error: BaseException) -> StopReason | None:
    stop = stop_of(error)
    return None if stop is None else stop.reason


class TestHowOften:
    """Attempts, and the words for them."""

    @pytest.mark.requirement("C32")
    def test_three_attempts_are_the_default(self, call: Any, still: Sleepless) -> None:
        """
        The first and two retries; the last error is raised.
        """
        script = Script(REFUSED)

        with pytest.raises(REFUSED) as raised:
            call(Retry(environment=still), script)
        assert script.calls == 3
        assert StopReason.ATTEMPTS is reason(raised.value)

    @pytest.mark.requirement("C34")
    def test_more_than_five_must_be_said_twice(self) -> None:
        """
        attempts=6 is refused, attempts=6 with allow_many is not; and a hundred is the end.
        """
        with pytest.raises(ConfigurationError, match="say it twice"):
            Retry(6)
        assert Retry(6, allow_many=True).max_attempts == 6
        assert Retry(5).max_attempts == 5
        with pytest.raises(ConfigurationError, match="at most 100"):
            Retry(101, allow_many=True)

    @pytest.mark.requirement("D52")
    def test_max_retries_counts_the_retries_and_attempts_counts_the_attempts(self) -> None:
        """
        max_retries=2 is attempts=3; both together are refused.
        """
        assert Retry(max_retries=2).max_attempts == 3
        assert Retry(max_retries=0).max_attempts == 1
        with pytest.raises(ConfigurationError, match="not both"):
            Retry(3, max_retries=2)

    @pytest.mark.requirement("C03")
    @pytest.mark.parametrize(
        "options",
        [
            {"attempts": 0},
            {"attempts": -1},
            {"attempts": 2.0},
            {"attempts": True},
            {"max_retries": -1},
            {"elapsed": None},
            {"elapsed": float("inf")},
            {"elapsed": 0},
            {"elapsed": float("nan")},
            {"elapsed": 86_401},
            {"timeout": None},
            {"timeout": float("inf")},
            {"timeout": -1},
            {"cap": float("inf")},
            {"jitter": "none"},
            {"safe": "yes"},
            {"probe": 7},
            {"classifier": object()},
        ],
    )
    def test_a_policy_without_bounds_or_sense_is_refused(self, options: dict[str, Any]) -> None:
        """
        When it is made, and not at three in the morning.
        """
        with pytest.raises(ConfigurationError):
            Retry(**options)

    def test_a_policy_does_not_change(self) -> None:
        """
        Setting anything on it is refused, and it stays as it was.
        """
        policy = Retry()
        with pytest.raises(ConfigurationError, match="cannot be changed"):
            policy.elapsed = 5
        assert policy.elapsed == 60


class TestHowLong:
    """Waits, limits, and what the other side asks for."""

    @pytest.mark.requirement("C33", "D54")
    def test_the_waits_grow_and_there_is_none_after_the_last_attempt(self, call: Any) -> None:
        """
        One sleep fewer than attempts, each below its ceiling; another seed waits otherwise, the same seed the same.
        """

        def slept(seed: str) -> list[float]:
            still = Sleepless(seed=seed)
            with pytest.raises(REFUSED):
                call(Retry(5, environment=still), Script(REFUSED))
            return still.slept

        waits = slept("a")
        assert len(waits) == 4
        assert all(0 <= wait <= ceiling for wait, ceiling in zip(waits, (0.1, 0.2, 0.4, 0.8), strict=True))
        assert waits == slept("a")
        assert waits != slept("b")

    @pytest.mark.requirement("C35", "C36")
    def test_elapsed_time_stops_it_before_the_attempts_are_used_up(self, call: Any, still: Sleepless) -> None:
        """
        Attempts of 25 seconds: after the third, 60 seconds are over, whatever else was allowed.
        """
        script = Script(REFUSED)

        def slow() -> None:
            still.advance(25)
            script()

        with pytest.raises(REFUSED) as raised:
            call(Retry(5, environment=still), slow)
        assert script.calls == 3
        assert StopReason.ELAPSED is reason(raised.value)

    @pytest.mark.requirement("C36")
    def test_attempts_stop_it_before_the_time_is_used_up(self, call: Any, still: Sleepless) -> None:
        """
        The other ceiling: three quick attempts, and most of the minute is left.
        """
        with pytest.raises(REFUSED) as raised:
            call(Retry(environment=still), Script(REFUSED))
        assert StopReason.ATTEMPTS is reason(raised.value)
        assert still.monotonic() < 1

    @pytest.mark.requirement("C41", "D38")
    def test_a_server_is_never_asked_earlier_than_it_wants(self, call: Any, still: Sleepless) -> None:
        """
        At least its wait, some jitter on top, and more of it the second time, though it says the same.
        """
        script = Script(Failed(429, retry_after="7"), Failed(429, retry_after="7"), "done")

        assert call(Retry(environment=still), script) == "done"
        assert len(still.slept) == 2
        assert 7 < still.slept[0] <= 7.1
        assert 7 < still.slept[1] <= 7.2

    def test_a_thousand_clients_told_the_same_wait_do_not_come_back_together(self) -> None:
        """
        The jitter is on top of the server's wait, so they differ.
        """
        waits = set()
        for number in range(200):
            still = Sleepless(seed=str(number))
            Retry(environment=still).call(Script(Failed(429, retry_after="7"), "done"))
            waits.add(round(still.slept[0], 6))

        assert len(waits) > 190

    @pytest.mark.requirement("C41")
    def test_a_wait_past_the_time_left_stops_at_once_and_says_when_to_come_back(
        self, call: Any, still: Sleepless
    ) -> None:
        """
        Asked to wait an hour with five seconds left: one call, no sleep, and the time to come back.
        """
        script = Script(Failed(503, retry_after="3600"))

        with pytest.raises(DeadlineExceeded) as raised:
            call(Retry(elapsed=5, safe=True, environment=still), script)
        assert (script.calls, still.slept) == (1, [])
        assert StopReason.DEADLINE is reason(raised.value)
        assert isinstance(raised.value.__cause__, Failed)
        assert datetime.fromtimestamp(still.wall_us() / 1e6, UTC) + timedelta(hours=1) == raised.value.retry_at
        assert raised.value.retry_after_seconds == 3600

    def test_our_own_error_for_a_rate_limit_is_obeyed(self, call: Any, still: Sleepless) -> None:
        """
        A client raises `RateLimitError(retry_after_seconds=3)`; the policy waits that long, key or no key.
        """
        assert call(Retry(environment=still), Script(RateLimitError(retry_after_seconds=3), "done")) == "done"
        assert 3 < still.slept[0] <= 3.1

    def test_an_attempt_gets_its_timeout_or_what_is_left(self, call: Any, still: Sleepless) -> None:
        """
        Thirty seconds each, of sixty: the third gets less.
        """
        seen = []

        def slow(timeout: float) -> None:
            seen.append(timeout)
            still.advance(24)
            raise REFUSED

        with pytest.raises(REFUSED):
            call_with(call, Retry(environment=still), slow)
        assert seen[:2] == [30, 30]
        assert 11 < seen[2] < 12.1

    def test_a_timeout_that_the_caller_gives_is_left_alone(self, still: Sleepless) -> None:
        """
        Ours is handed in only where nobody else's is.
        """
        assert Retry(environment=still).call(lambda timeout: timeout, timeout=5) == 5

    def test_the_wall_clock_may_jump(self, call: Any, still: Sleepless) -> None:
        """
        An hour forwards or back between two attempts changes no decision: only the monotonic clock counts.
        """
        script = Script(REFUSED)

        def jumping() -> None:
            still.jump(3_600 if script.calls % 2 else -7_200)
            script()

        with pytest.raises(REFUSED):
            call(Retry(environment=still), jumping)
        assert script.calls == 3

    def test_an_awaited_attempt_is_held_to_its_timeout(self) -> None:
        """
        What hangs is interrupted; the time-out is an unknown outcome, so without a key it ends there.
        """

        async def hang() -> None:
            await asyncio.Event().wait()

        async def main() -> None:
            with pytest.raises(OutcomeUnknown) as raised:
                await Retry(timeout=0.01).acall(hang)
            assert isinstance(raised.value.__cause__, TimeoutError)

        asyncio.run(main())


def call_with(call: Any, policy: Retry, fn: Any) -> Any:
    """Call a function that takes `timeout`, in either colour."""
    if call.__name__ == "blocking":
        return policy.call(fn)

    async def afn(timeout: float) -> Any:
        return fn(timeout)

    return asyncio.run(policy.acall(afn))


class TestWhetherItIsSafe:
    """The key gate: what may have happened is not repeated blindly."""

    def test_an_unknown_outcome_without_a_key_is_not_tried_again(self, call: Any, still: Sleepless) -> None:
        """
        One call; the error says that it may have happened, and the attempt's own error is its cause.
        """
        script = Script(UNKNOWN)

        with pytest.raises(OutcomeUnknown) as raised:
            call(Retry(environment=still), script)
        assert script.calls == 1
        assert StopReason.NO_KEY is reason(raised.value)
        assert isinstance(raised.value.__cause__, UNKNOWN)

    @pytest.mark.parametrize(
        "bound",
        [
            {"key": "charge:1"},
            {"safe": True},
            {"method": "GET"},
            {"method": "PUT"},
            {"method": "delete"},
            {"method": "POST", "key": "charge:1"},
        ],
    )
    def test_a_key_or_a_safe_method_makes_it_repeatable(
        self, call: Any, still: Sleepless, bound: dict[str, Any]
    ) -> None:
        """
        The key decides, and not the method alone: a POST with a key is tried again.
        """
        assert call(Retry(environment=still).bind(**bound), Script(UNKNOWN, UNKNOWN, "done")) == "done"

    @pytest.mark.parametrize("method", ["POST", "PATCH", "CONNECT"])
    def test_a_post_without_a_key_is_not_repeated(self, call: Any, still: Sleepless, method: str) -> None:
        """
        Its outcome is unknown after a 500, so it ends there.
        """
        script = Script(Failed(500))

        with pytest.raises(OutcomeUnknown):
            call(Retry(environment=still).bind(method=method), script)
        assert script.calls == 1

    @pytest.mark.requirement("D41")
    @pytest.mark.parametrize(
        "error",
        [ConnectionResetError(), socket.gaierror(), ssl.SSLError(), ConnectionRefusedError(), BrokenPipeError()],
    )
    def test_trouble_on_the_way_is_tried_again(self, call: Any, still: Sleepless, error: Exception) -> None:
        """
        Reset, unknown host, failed handshake, refused, no answer: with a key, every one of them.
        """
        assert call(Retry(environment=still).bind(key="k"), Script(error, "done")) == "done"

    def test_what_certainly_did_not_happen_needs_no_key(self, call: Any, still: Sleepless) -> None:
        """
        A refused connection and a rate limit are tried again without one.
        """
        assert call(Retry(environment=still), Script(REFUSED, Failed(429), "done")) == "done"

    def test_doubt_is_sticky(self, call: Any, still: Sleepless) -> None:
        """
        A rejection of a later attempt says nothing about the first: the final verdict is that nobody knows.
        """
        script = Script(UNKNOWN, Failed(400))

        with pytest.raises(Failed) as raised:
            call(Retry(environment=still).bind(key="k"), script)
        stop = stop_of(raised.value)
        assert stop is not None
        assert (stop.verdict.certainty, stop.last.certainty) == (Certainty.UNKNOWN, Certainty.REJECTED)
        assert "may have happened" in raised.value.__notes__[0]

    @pytest.mark.requirement("D55")
    def test_the_key_is_the_same_on_every_attempt(self, still: Sleepless) -> None:
        """
        It is made from the arguments before the first attempt, and a function that changes them does not change it.
        """
        seen: list[Any] = []

        @Retry(key=lambda order: f"charge:{order['id']}", environment=still)
        def charge(order: dict[str, Any], *, attempt: Attempt) -> str:
            seen.append((attempt.number, attempt.key))
            order["id"] += 1
            if attempt.number < 3:
                raise UNKNOWN
            return "charged"

        assert charge({"id": 17}) == "charged"  # type: ignore[call-arg]
        assert seen == [(1, "charge:17"), (2, "charge:17"), (3, "charge:17")]

    def test_a_probe_decides(self, call: Any, still: Sleepless) -> None:
        """
        Found: its result, and no second call. Not found: again. A probe that fails, or does not know: stop.
        """
        script = Script(UNKNOWN, "done")
        assert call(Retry(probe=lambda attempt: Found("found"), environment=still), script) == "found"
        assert script.calls == 1
        assert call(Retry(probe=lambda attempt: NOT_FOUND, environment=still), script) == "done"

        for useless in (Script(ValueError), Script(None)):
            with pytest.raises(OutcomeUnknown):
                call(Retry(probe=useless, environment=still), Script(UNKNOWN))

    def test_what_cannot_be_sent_again_is_not(self, call: Any, still: Sleepless) -> None:
        """
        A streamed body: the error that a buffered one would have been retried for is raised unchanged.
        """
        script = Script(REFUSED)

        with pytest.raises(REFUSED) as raised:
            call(Retry(environment=still).bind(key="k", replayable=False), script)
        assert (script.calls, reason(raised.value)) == (1, StopReason.NOT_REPLAYABLE)

    def test_a_generator_is_refused_when_it_is_declared(self) -> None:
        """
        What it has yielded cannot be taken back.
        """

        def stream() -> Any:
            yield 1

        async def astream() -> Any:
            yield 1

        for one in (stream, astream):
            with pytest.raises(ConfigurationError, match="generator"):
                Retry()(one)


class TestWhatIsNotWorthIt:
    """Errors that another attempt would not help."""

    @pytest.mark.requirement("D42", "D44", "D53", "C42")
    @pytest.mark.parametrize("status", [400, 404, 409, 410, 422])
    def test_a_refused_request_is_refused_once(
        self, call: Any, still: Sleepless, status: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        """
        One call, no sleep, one line in the log, and the error itself.
        """
        script, error = Script(Failed(status)), None

        with caplog.at_level(logging.WARNING, "onceward"), pytest.raises(Failed) as raised:
            call(Retry(environment=still), script)
        error = raised.value
        assert (script.calls, still.slept, reason(error)) == (1, [], StopReason.NEVER)
        assert len(caplog.records) == 1

    @pytest.mark.requirement("D38", "D39", "D40")
    @pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
    def test_trouble_that_passes_is_tried_again(self, call: Any, still: Sleepless, status: int) -> None:
        """
        With a key, every one of them.
        """
        assert call(Retry(environment=still).bind(key="k"), Script(Failed(status), "done")) == "done"

    @pytest.mark.requirement("D48")
    def test_an_error_that_nobody_knows_is_not_tried_again(self, call: Any, still: Sleepless) -> None:
        """
        A bug stays a bug after three attempts.
        """
        script = Script(ValueError("a bug"))

        with pytest.raises(ValueError) as raised:
            call(Retry(environment=still).bind(key="k"), script)
        assert (script.calls, reason(raised.value)) == (1, StopReason.NEVER)

    def test_a_server_that_says_no_is_believed(self, call: Any, still: Sleepless) -> None:
        """
        A 503 that asks not to be retried is not, and the reason says whose word it was.
        """
        script = Script(Failed(503, x_should_retry="false"))

        with pytest.raises(Failed) as raised:
            call(Retry(environment=still).bind(key="k"), script)
        assert (script.calls, reason(raised.value)) == (1, StopReason.SERVER_SAID_NO)

    @pytest.mark.requirement("C29", "D43")
    def test_operators_are_told_once_about_refused_credentials(self, call: Any, still: Sleepless) -> None:
        """
        Ten calls with a revoked token: one alert. Another credential is another alert; so is the next outage.
        """
        alerts: list[Stop] = []
        policy = Retry(on_auth=alerts.append, environment=still)

        def refused(bound: Retry) -> None:
            with pytest.raises(Failed):
                call(bound, Script(Failed(401)))

        for _ in range(10):
            refused(policy)
        assert len(alerts) == 1
        assert Action.REFRESH is alerts[0].last.action
        refused(policy.bind(credential="other"))
        assert len(alerts) == 2
        call(policy, Script("done"))
        refused(policy)
        assert len(alerts) == 3

    @pytest.mark.requirement("D68")
    def test_an_open_circuit_further_down_is_not_knocked_at(self, call: Any, still: Sleepless) -> None:
        """
        `CircuitOpen` from inside is final for every layer outside.
        """
        script = Script(CircuitOpen(retry_after_seconds=3))

        with pytest.raises(CircuitOpen) as raised:
            call(Retry(environment=still).bind(key="k"), script)
        assert (script.calls, reason(raised.value)) == (1, StopReason.BREAKER)


class TestWhatIsRaised:
    """The last error unchanged, or one that says more."""

    @pytest.mark.requirement("D54")
    def test_the_last_error_itself_is_raised(self, call: Any, still: Sleepless) -> None:
        """
        The same object, with no context of earlier attempts and a note that says why.
        """
        errors = [REFUSED("1"), REFUSED("2"), REFUSED("3")]

        with pytest.raises(REFUSED) as raised:
            call(Retry(environment=still), Script(*errors))
        assert errors[2] is raised.value
        assert raised.value.__context__ is None
        assert len(raised.value.__notes__) == 1

    def test_an_error_whose_words_fail_is_raised_all_the_same(self, call: Any, still: Sleepless) -> None:
        """
        A str() that raises and attributes that cannot be set change nothing.
        """

        class Mute(REFUSED):
            def __str__(self) -> str:
                raise RuntimeError("no words")

            def __setattr__(self, name: str, value: Any) -> None:
                raise RuntimeError("no attributes")

        script = Script(Mute())
        with pytest.raises(Mute):
            call(Retry(environment=still), script)
        assert script.calls == 3

    @pytest.mark.parametrize("broken", ["raises", "nonsense"])
    def test_a_classifier_that_fails_means_unknown_and_never(self, call: Any, still: Sleepless, broken: str) -> None:
        """
        The function's error is raised, not the classifier's, and nothing is tried again.
        """

        class Broken:
            def judge(self, problem: Any, *, now: Any = None) -> Any:
                if broken == "raises":
                    raise RuntimeError("no verdict")
                return "retry!"

        script = Script(REFUSED)
        with pytest.raises(REFUSED) as raised:
            call(Retry(classifier=Broken(), environment=still), script)
        stop = stop_of(raised.value)
        assert stop is not None
        assert (script.calls, stop.reason, stop.verdict.certainty) == (1, StopReason.NEVER, Certainty.UNKNOWN)

    @pytest.mark.fault("a-classifiers-own-judge-is-passed-over")
    def test_a_classifier_with_a_judge_of_its_own_is_asked(self, call: Any, still: Sleepless) -> None:
        """
        A subclass may say something else, and what it says counts. It is told the time as a date.
        """
        asked: list[datetime | None] = []

        class Stern(Classifier):
            def judge(self, problem: Any, *, now: datetime | None = None) -> Verdict:
                asked.append(now)
                return super().judge(problem, now=now)._replace(action=Action.NEVER)

        script = Script(REFUSED)
        with pytest.raises(REFUSED):
            call(Retry(classifier=Stern(), environment=still), script)
        assert script.calls == 1
        assert asked == [datetime.fromtimestamp(still.wall_us() / 1e6, UTC)]

    @pytest.mark.fault("a-wait-until-a-date-is-not-read")
    def test_a_server_may_ask_to_be_left_alone_until_a_date(self, call: Any, still: Sleepless) -> None:
        """
        The wait goes by the policy's own clock: as long as it is until then, and the back-off.
        """
        until = datetime.fromtimestamp(still.wall_us() // 1_000_000 + 7, UTC)
        busy = Failed(429, Retry_After=until.strftime("%a, %d %b %Y %H:%M:%S GMT"))

        assert call(Retry(environment=still), Script(busy, 1)) == 1
        assert 6 <= still.slept[0] <= 7.1

    def test_answers_can_count_as_failures(self, call: Any, still: Sleepless) -> None:
        """
        For clients that return what others raise: judged the same, and the last one is returned.
        """
        policy = Retry(failed=lambda answer: answer.status_code >= 400, environment=still)
        ok, bad = Answer(200), Answer(429)

        assert ok is call(policy, Script(bad, bad, ok))
        assert bad is call(policy, Script(bad))
        with pytest.raises(OutcomeUnknown):
            call(policy, Script(Answer(500)))

    def test_a_predicate_that_fails_says_nothing(self, call: Any, still: Sleepless) -> None:
        """
        Then what was returned is returned.
        """
        assert call(Retry(failed=Script(ValueError), environment=still), Script(7)) == 7

    def test_an_interrupt_is_not_an_error(self, call: Any, still: Sleepless) -> None:
        """
        Ctrl-C goes straight through, after any attempt.
        """
        for lines in ((KeyboardInterrupt,), (REFUSED, KeyboardInterrupt)):
            script = Script(*lines)
            with pytest.raises(KeyboardInterrupt):
                call(Retry(environment=still), script)
            assert len(lines) == script.calls

    def test_an_async_function_under_call_is_refused(self) -> None:
        """
        It would never run.
        """

        async def fetch() -> None: ...

        with pytest.raises(ConfigurationError, match="acall"):
            Retry().call(fetch)


class TestBudgetAndBreaker:
    """What spares the other side."""

    @pytest.mark.requirement("D69")
    def test_a_spent_budget_ends_the_retries_and_not_the_calls(self, call: Any, still: Sleepless) -> None:
        """
        Ten retries in all; after that every call is made once, and says why there was no second.
        """
        budget, script = Budget(environment=still), Script(REFUSED)
        policy = Retry(budget=budget, environment=still)
        outcomes = []
        for _ in range(20):
            try:
                call(policy, script)
            except BudgetExhausted as error:
                outcomes.append(reason(error))
                assert isinstance(error.__cause__, REFUSED)
            except REFUSED as error:
                outcomes.append(reason(error))

        assert outcomes == [StopReason.ATTEMPTS] * 5 + [StopReason.BUDGET] * 15
        assert (script.calls, budget.granted, budget.refused) == (30, 10, 15)

    def test_successes_pay_for_retries(self, call: Any, still: Sleepless) -> None:
        """
        Ten of them for one retry.
        """
        budget = Budget(burst=1, environment=still)
        policy = Retry(2, budget=budget, environment=still)
        with pytest.raises(REFUSED):
            call(policy, Script(REFUSED))
        with pytest.raises(BudgetExhausted):
            call(policy, Script(REFUSED))
        for _ in range(11):
            call(policy, Script("done"))

        assert call(policy, Script(REFUSED, "done")) == "done"

    @pytest.mark.requirement("D59", "D67")
    def test_an_open_circuit_means_no_call(self, call: Any, still: Sleepless) -> None:
        """
        Five failures open it; then nothing is called, the error says when to come back, and a fallback can answer.
        """
        breaker = Breaker("payments", environment=still)
        policy, script = Retry(environment=still, breaker=breaker), Script(REFUSED)
        with pytest.raises(REFUSED):
            call(policy, script)
        with pytest.raises(CircuitOpen) as raised:
            call(policy, script)
        assert isinstance(raised.value.__cause__, REFUSED)
        assert script.calls == 5
        with pytest.raises(CircuitOpen) as raised:
            call(policy, script)
        assert (script.calls, reason(raised.value)) == (5, StopReason.BREAKER)
        assert 29 < (raised.value.retry_after_seconds or 0) <= 30
        human = Retry(environment=still, breaker=breaker_with(breaker, lambda error: "asked a human"))
        assert call(human, script) == "asked a human"

    def test_retries_only_lets_first_tries_through(self, call: Any, still: Sleepless) -> None:
        """
        While it is open every call is made once and none is repeated.
        """
        breaker = Breaker("shards", retries_only=True, environment=still)
        breaker.trip()
        policy, script = Retry(environment=still, breaker=breaker), Script(REFUSED)

        with pytest.raises(CircuitOpen):
            call(policy, script)
        assert script.calls == 1
        assert call(policy, Script("done")) == "done"

    def test_a_failure_in_between_does_not_leave_a_probe_behind(self, call: Any, still: Sleepless) -> None:
        """
        An interrupted probe gives its slot back.
        """
        breaker = Breaker("payments", environment=still)
        breaker.trip()
        still.advance(31)
        with pytest.raises(KeyboardInterrupt):
            call(Retry(environment=still, breaker=breaker), Script(KeyboardInterrupt))

        assert call(Retry(environment=still, breaker=breaker), Script("done")) == "done"
        assert breaker.state == "closed"


def breaker_with(breaker: Breaker, fallback: Any) -> Breaker:
    breaker.fallback = fallback
    return breaker


class Letters:
    """Keeps what was given up."""

    def __init__(self) -> None:
        self.kept: list[tuple[Stop, GivenUp]] = []

    def put(self, stop: Stop, call: GivenUp) -> None:
        self.kept.append((stop, call))


class TestWhoIsTold:
    """Hooks and dead letters."""

    def test_what_is_given_up_is_kept_and_somebody_is_told(self, call: Any, still: Sleepless) -> None:
        """
        The key, the last error, the attempts and the arguments; and it ends there.
        """
        letters, alerts = Letters(), []
        policy = Retry(dead=letters, on_stop=alerts.append, environment=still).bind(key="charge:1")

        with pytest.raises(REFUSED) as raised:
            call(policy, Script(REFUSED), 12, currency="EUR")
        ((stop, given_up),) = letters.kept
        assert [stop] == alerts
        assert (3, raised.value, "charge:1") == (stop.attempts, stop.problem, given_up.key)
        assert (given_up.args, given_up.kwargs) == ((12,), {"currency": "EUR"})

    def test_what_would_never_work_is_not_kept(self, call: Any, still: Sleepless) -> None:
        """
        A refused request is the caller's to mend.
        """
        letters = Letters()
        with pytest.raises(Failed):
            call(Retry(dead=letters, environment=still), Script(Failed(400)))
        assert letters.kept == []

    def test_retries_are_told_of(self, call: Any, still: Sleepless) -> None:
        """
        Which attempt failed, how, and how long it will be.
        """
        told: list[Any] = []
        call(Retry(on_retry=told.append, environment=still), Script(REFUSED, REFUSED, "done"))

        assert [one.attempt for one in told] == [1, 2]
        assert still.slept == [one.wait for one in told]

    def test_a_hook_that_raises_changes_nothing(
        self, call: Any, still: Sleepless, caplog: pytest.LogCaptureFixture
    ) -> None:
        """
        Every hook and the dead letters: the outcome is the same, and the log says who it was.
        """
        bad = Script(RuntimeError("hook"))

        class Full:
            def put(self, stop: Stop, call: GivenUp) -> None:
                raise RuntimeError("full")

        policy = Retry(on_retry=bad, on_stop=bad, on_auth=bad, dead=Full(), environment=still)
        with pytest.raises(REFUSED):
            call(policy, Script(REFUSED))
        with pytest.raises(Failed):
            call(policy, Script(Failed(401)))
        said = " ".join(record.getMessage() for record in caplog.records)
        assert all(name in said for name in ("on_retry", "on_stop", "on_auth", "dead.put"))

    def test_a_hook_that_hangs_costs_its_own_calls_time(self, call: Any, still: Sleepless) -> None:
        """
        What it took counts, so the policy does not sleep past its limit afterwards.
        """
        script = Script(REFUSED)
        policy = Retry(elapsed=10, on_retry=lambda told: still.advance(60), environment=still)

        with pytest.raises(REFUSED) as raised:
            call(policy, script)
        assert (script.calls, still.slept, reason(raised.value)) == (1, [], StopReason.ELAPSED)

    def test_an_awaited_hook_that_hangs_is_left_behind(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        After a few seconds the call goes on without it.
        """
        monkeypatch.setattr("onceward.retry.retry_runner_base.HOOK_SECONDS", 0.01)

        async def hang(stop: Stop) -> None:
            await asyncio.Event().wait()

        async def refused() -> None:
            raise REFUSED

        async def main() -> None:
            with pytest.raises(REFUSED):
                await Retry(1, on_stop=hang).acall(refused)

        asyncio.run(main())


class TestTheSwitch:
    """For users' own tests."""

    def test_retries_can_be_switched_off(self, call: Any, still: Sleepless) -> None:
        """
        One attempt inside the block, three outside; blocks may nest.
        """
        policy, script = Retry(environment=still), Script(REFUSED)
        with retries_off(), retries_off(), pytest.raises(REFUSED):
            call(policy, script)
        assert script.calls == 1
        with pytest.raises(REFUSED):
            call(policy, script)
        assert script.calls == 4

    def test_sleeping_can_be_switched_off(self, call: Any) -> None:
        """
        All the attempts, with the real clock, in no time.
        """
        script = Script(REFUSED)
        with no_sleeping(), pytest.raises(REFUSED):
            call(Retry(base=3_000, cap=3_600, elapsed=80_000, jitter="equal"), script)
        assert script.calls == 3

    def test_the_environment_variable_switches_a_whole_run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        off, no-sleep, or a clear error.
        """
        from onceward.retry.retry_switch import _Switch

        for value, expected in (("off", (1, 0)), ("no-sleep", (0, 1)), ("", (0, 0))):
            switch = _Switch()
            switch.read(value)
            assert (switch.retries_off, switch.no_sleeping) == expected
        with pytest.raises(ConfigurationError, match="ONCEWARD_RETRIES"):
            _Switch().read("maybe")


def test_every_choice_is_explicit_and_shown() -> None:
    """
    Attempts, time in all and time each can be read back.
    """
    policy = Retry(attempts=2, elapsed=timedelta(seconds=45), timeout=5)

    assert (policy.max_attempts, policy.elapsed, policy.timeout) == (2, 45.0, 5.0)
    assert repr(policy) == "<Retry 2 attempts, 45 s in all, 5 s each>"


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("action", list(Action))
@pytest.mark.parametrize("certainty", list(Certainty))
def test_the_table_of_verdicts(certainty: Certainty, kind: Kind, action: Action, still: Sleepless) -> None:
    """
    Tried again if the verdict says same key and nothing happened, or nobody knows and there is a key: never else.
    """
    for key in (None, "k"):
        script = Script(RuntimeError)
        policy = Retry(classifier=Says(certainty, kind, action), environment=still).bind(key=key)
        again = action is Action.SAME_KEY and (certainty is not Certainty.UNKNOWN or key is not None)
        with pytest.raises((RuntimeError, OutcomeUnknown)):
            policy.call(script)
        assert (3 if again else 1) == script.calls


def test_a_deadline_that_is_over_means_no_call(call: Any, still: Sleepless) -> None:
    """
    The caller's time has run out before the first attempt.
    """
    script = Script("done")
    with deadline(5, environment=still):
        still.advance(6)
        with pytest.raises(DeadlineExceeded) as raised:
            call(Retry(environment=still), script)
    assert (script.calls, reason(raised.value)) == (0, StopReason.DEADLINE)


@pytest.mark.requirement("D82")
def test_the_checklist_of_error_handling(still: Sleepless) -> None:
    """
    Errors are classed; 4xx but 429 are not retried; 5xx and the network are; there is a maximum.
    """

    def calls(problem: Exception) -> int:
        script = Script(problem)
        with pytest.raises(Exception):  # noqa: B017 - which one is other tests' business
            Retry(environment=still).bind(key="k").call(script)
        return script.calls

    refused = (400, 401, 403, 404, 405, 409, 413, 415, 422)
    assert dict.fromkeys(refused, 1) == {status: calls(Failed(status)) for status in refused}
    passing = (429, 500, 502, 503, 504)
    assert dict.fromkeys(passing, 3) == {status: calls(Failed(status)) for status in passing}
    assert [calls(error) for error in (ConnectionResetError(), TimeoutError(), socket.gaierror())] == [3, 3, 3]


@pytest.mark.requirement("D83")
def test_the_checklist_of_back_off_and_breakers(still: Sleepless) -> None:
    """
    Exponential, full jitter, a cap, a base; a breaker per dependency, a threshold, a recovery, a fallback.
    """
    backoff = Retry().backoff
    assert (backoff.jitter, backoff.base, backoff.cap) == ("full", 0.1, 10)
    assert 2 * backoff.ceiling(0) == backoff.ceiling(1)
    one, two = (
        Breaker("one", threshold=2, recovery=7, fallback=lambda error: "later", environment=still),
        Breaker("two"),
    )
    for _ in range(2):
        with pytest.raises(REFUSED):
            one.call(Script(REFUSED))
    assert (one.state, two.state, one.retry_after()) == ("open", "closed", 7)
    assert one.call(Script("now")) == "later"


@pytest.mark.requirement("D71")
def test_retry_and_breaker_go_by_the_same_classifier(still: Sleepless) -> None:
    """
    By default the very same object; taught that an error passes, both believe it, and both do not otherwise.
    """

    class Gone(Exception):
        """Something of the user's own."""

    taught = DEFAULT.extended({Gone: Verdict(Certainty.NOT_SENT, Kind.UPSTREAM, Action.SAME_KEY)})
    for classifier, calls, state in ((DEFAULT, 1, "closed"), (taught, 3, "open")):
        breaker = Breaker("b", threshold=3, classifier=classifier, environment=still)
        script = Script(Gone)
        with pytest.raises(Gone):
            Retry(classifier=classifier, breaker=breaker, environment=still).call(script)
        assert (calls, state) == (script.calls, breaker.state)
    assert DEFAULT is Retry().classifier is Breaker("b")._judge


@pytest.mark.requirement("D70")
def test_a_plan_goes_on_where_an_open_circuit_stopped_it(still: Sleepless) -> None:
    """
    Four steps; the breaker opens at the third. On the second run the steps before replay, and the rest runs: each once.
    """
    gate = Gate(open_store("memory://", environment=still), scope="test:acme", environment=still)
    mail, done = Breaker("mail", environment=still), []
    mail.trip()

    def run() -> None:
        plan = gate.plan("onboard-7")
        for step in ("account", "card"):
            plan.step(step, lambda step=step: done.append(step))
        plan.step("mail", lambda: mail.call(lambda: done.append("mail")), before=CircuitOpen)
        plan.step("report", lambda: done.append("report"))

    with pytest.raises(CircuitOpen):
        run()
    assert done == ["account", "card"]
    still.advance(31)
    run()

    assert done == ["account", "card", "mail", "report"]
    gate.close()


def test_what_cannot_be_awaited_is_said_so() -> None:
    """
    A plain function under acall is a mistake, and is called one.
    """
    with pytest.raises(ConfigurationError, match="cannot be awaited"):
        asyncio.run(Retry().acall(lambda: 7))  # type: ignore[arg-type, return-value]


@pytest.mark.fault("every-stopped-call-is-a-line")
def test_two_thousand_failures_are_a_handful_of_lines(call: Any, still: Sleepless, caplog: Any) -> None:
    """
    The first at once; the others as a number on the line of ten seconds later. Another reason is other news.
    """
    policy, breaker = Retry(attempts=1, environment=still, name="fetch"), Breaker("b", environment=still)
    for _ in range(2_000):
        with pytest.raises(REFUSED):
            call(policy, Script(REFUSED))
    still.advance(11)
    with pytest.raises(REFUSED):
        call(policy, Script(REFUSED))
    breaker.trip()
    with pytest.raises(CircuitOpen):
        call(Retry(breaker=breaker, environment=still, name="fetch"), Script("done"))

    assert [record.getMessage() for record in caplog.records] == [
        "onceward: fetch stopped after 1 attempt in less than 1 ms: the policy allows no more (attempts)",
        "onceward: fetch stopped after 1 attempt in less than 1 ms: the policy allows no more (attempts)"
        " (and 1999 more like it since the last such line)",
        "onceward: fetch was not called: the circuit is open (breaker)",
    ]
