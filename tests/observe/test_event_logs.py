"""Logs: what needs somebody, once; what repeats, now and then with its number."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import structlog

from onceward.gate import Event, EventType
from onceward.observe import LoggingListener, StructlogListener
from onceward.observe.event_logs import REPEATS_MAX
from onceward.testing.clock import StillEnvironment


def refused(number: int = 1, operation: str = "pay") -> Event:
    return Event(EventType.REFUSED, f"{number:012x}", "acme", operation, 1, 1, "key_reused")


class TestLogging:
    """The standard library's."""

    def test_doubt_is_an_error_and_a_replay_is_for_debugging(self, caplog: pytest.LogCaptureFixture) -> None:
        """
        With the facts beside the line, for formatters that write JSON.
        """
        listener = LoggingListener()
        with caplog.at_level(logging.DEBUG, "onceward.events"):
            listener(refused()._replace(type=EventType.IN_DOUBT, detail="TimeoutError"))
            listener(refused()._replace(type=EventType.REPLAYED, detail=""))

        assert [one.levelname for one in caplog.records] == ["ERROR", "DEBUG"]
        assert caplog.messages[0] == "in_doubt pay 000000000001 in acme (attempt 1): TimeoutError"
        assert caplog.records[0].__dict__["onceward"]["digest"] == "000000000001"

    @pytest.mark.fault("every-refusal-is-a-line")
    def test_repeated_refusals_are_logged_once_a_minute_and_counted(
        self, caplog: pytest.LogCaptureFixture, still: StillEnvironment
    ) -> None:
        """
        A thousand refusals, each of another key, as an attacker sends them: one line now, one in a minute, which says
        how many there were. Another operation's is logged all the same.
        """
        listener = LoggingListener(environment=still)
        for number in range(1_000):
            listener(refused(number))
        listener(refused(1, "mail"))
        still.advance(60)
        listener(refused())

        assert len(caplog.messages) == 3
        assert caplog.messages[2].endswith("(999 more like this one were not logged)")

    def test_what_is_counted_is_bounded(self, still: StillEnvironment, caplog: pytest.LogCaptureFixture) -> None:
        """
        However many operations are refused, a thousand are remembered.
        """
        listener = LoggingListener(environment=still)
        for number in range(2 * REPEATS_MAX):
            listener(refused(1, f"pay-{number}"))

        assert len(listener._repeats) == REPEATS_MAX

    def test_a_name_cannot_make_a_line_of_its_own(self, caplog: pytest.LogCaptureFixture) -> None:
        """
        Newlines and escapes in what callers chose are blanks.
        """
        LoggingListener()(refused(1, "pay\nERROR forged\x1b[31m"))

        assert "\n" not in caplog.messages[0]
        assert "\x1b" not in caplog.messages[0]

    def test_nothing_is_written_that_nobody_wants(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        A level that is switched off costs one question.
        """
        logger = logging.Logger("quiet", logging.CRITICAL)
        monkeypatch.setattr(logger, "log", lambda *given, **named: pytest.fail("it was written"))

        LoggingListener(logger)(refused())


def test_structlog_has_names_and_values(still: StillEnvironment) -> None:
    """
    The type of the event is what happened, everything else a field; what an event has not is left out.
    """
    written: list[dict[str, Any]] = []

    def keep(logger: Any, method: str, facts: dict[str, Any]) -> dict[str, Any]:
        written.append({"level": method, **facts})
        raise structlog.DropEvent

    logger = structlog.wrap_logger(None, processors=[keep], wrapper_class=structlog.make_filtering_bound_logger(20))
    listener = StructlogListener(logger, environment=still)
    listener(refused())
    listener(refused())
    listener(refused()._replace(type=EventType.REPLAYED))
    still.advance(60)
    listener(refused())

    assert written[0] == {
        "level": "warning",
        "event": "onceward.refused",
        "digest": "000000000001",
        "scope": "acme",
        "operation": "pay",
        "attempt": 1,
        "fence": 1,
        "detail": "key_reused",
    }
    assert written[1]["missed"] == 1
    assert len(written) == 2
