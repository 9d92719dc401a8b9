"""
One breaker for many processes, on the records' own store.

Whoever asks blocks or awaits, and so does the store: each of these texts runs in every way in which they go together.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from retry_support import REFUSED, Script, Sleepless
from sharing_support import TESTS, Counting, Way

from colours import COLOURS, Colour
from onceward import CircuitOpen, ConfigurationError, Retry, stop_of
from onceward._core.stops import StopReason
from onceward.retry import Breaker


@pytest.fixture
def colour(way: Way) -> Colour:
    return way.asks


class Meanwhile(Sleepless):
    """A clock during whose sleep another process asks for the probe."""

    asks: Breaker | None = None

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Any] = []

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self.asks is not None:
            self.told.append(self.asks.admit())

    async def asleep(self, seconds: float) -> None:
        await super().asleep(seconds)
        if self.asks is not None and seconds:
            self.told.append(await self.asks.aadmit())


FAILING = """
import sys
sys.path.insert(0, sys.argv[1])
from colours import Colour
from onceward.retry import Breaker
from onceward.stores import open_async_store, open_store

url, failures, colour = sys.argv[2], int(sys.argv[3]), Colour(sys.argv[4])
store = colour.pick(open_store, open_async_store)(url)
breaker = Breaker.shared(store, "server", patience=20, staleness=1e-9)


def server():
    raise ConnectionRefusedError


for _ in range(failures):
    try:
        colour.call(breaker, server)
    except ConnectionRefusedError:
        pass
colour.run(store.close)
colour.close()
print(breaker.state.value)
"""


class TestBreaker:
    """Failures of all count; one probe for all."""

    def fail(self, colour: Colour, through: Breaker, times: int) -> None:
        for _ in range(times):
            with pytest.raises(REFUSED):
                colour.call(through, Script(REFUSED))

    def test_failures_of_several_processes_open_it_for_all(self, way: Way, url: str, name: str) -> None:
        """
        On every store: two here, three there; whoever fails next learns that it is open.
        """
        stores = [way.open(url) for _ in range(2)]
        one, two = (Breaker.shared(store, name, staleness=1e-9, patience=20) for store in stores)
        self.fail(way.asks, one, 2)
        self.fail(way.asks, two, 3)

        assert two.state == "open"
        self.fail(way.asks, one, 1)
        with pytest.raises(CircuitOpen):
            way.asks.call(one, Script("done"))
        way.close(*stores)

    def test_a_success_anywhere_in_between_begins_the_row_anew(
        self, colour: Colour, store: Counting, still: Sleepless
    ) -> None:
        """
        Four failures here, a success and a failure there: that is a row of one.
        """
        one, two = (Breaker.shared(store, "p", staleness=1e-9, patience=20, environment=still) for _ in range(2))
        self.fail(colour, one, 4)
        colour.call(two, Script("done"))
        self.fail(colour, two, 1)

        assert (one.state, two.state) == ("closed", "closed")

    def test_calls_that_succeed_never_touch_the_store(self, colour: Colour, store: Counting, still: Sleepless) -> None:
        """
        A hundred of them: no call.
        """
        through = Breaker.shared(store, "p", patience=20, environment=still)
        for _ in range(100):
            colour.call(through, Script("done"))

        assert store.calls == 0

    def test_one_process_in_all_probes(self, colour: Colour, store: Counting, still: Sleepless) -> None:
        """
        Five processes find the recovery over at the same time: one call goes out, and its success closes it for all.
        """
        every = [
            Breaker.shared(store, "p", staleness=0.001, patience=20, probe_lapse=5, environment=still) for _ in range(5)
        ]
        for through in every:
            self.fail(colour, through, 5 if through is every[0] else 1)
        assert [through.state for through in every] == ["open"] * 5
        still.advance(31)
        tickets = [colour.ask(through, "admit") for through in every]
        probing = [ticket for ticket in tickets if isinstance(ticket, int)]
        assert len(probing) == 1
        colour.ask(every[0], "report", tickets[0], "succeeded")
        still.advance(6)

        assert [colour.call(through, Script("done")) for through in every] == ["done"] * 5
        assert [through.state for through in every] == ["closed"] * 5

    def test_a_probe_that_dies_gives_its_slot_up(self, colour: Colour, store: Counting, still: Sleepless) -> None:
        """
        Another process gets it after `probe_lapse`; the late one's answer is fenced off and changes nothing.
        """
        one, two = (Breaker.shared(store, "p", patience=20, probe_lapse=5, environment=still) for _ in range(2))
        self.fail(colour, one, 5)
        self.fail(colour, two, 1)
        still.advance(31)
        assert isinstance(colour.ask(one, "admit"), int)  # And never comes back.
        with pytest.raises(CircuitOpen):
            colour.call(two, Script("done"))
        still.advance(6)

        assert colour.call(two, Script("done")) == "done"

    def test_a_probe_that_fails_keeps_it_open_for_all(self, colour: Colour, store: Counting, still: Sleepless) -> None:
        """
        For another recovery.
        """
        one, two = (Breaker.shared(store, "p", patience=20, environment=still) for _ in range(2))
        self.fail(colour, one, 5)
        self.fail(colour, two, 1)
        still.advance(31)
        self.fail(colour, one, 1)
        still.advance(1)

        with pytest.raises(CircuitOpen):
            colour.call(two, Script("done"))

    def test_a_store_that_is_away_leaves_the_local_breaker(
        self, colour: Colour, store: Counting, still: Sleepless
    ) -> None:
        """
        Five failures here open it here, a probe here closes it here.
        """
        store.away = True
        through = Breaker.shared(store, "p", patience=20, environment=still)
        self.fail(colour, through, 5)
        assert through.state == "open"
        still.advance(31)

        assert colour.call(through, Script("done")) == "done"
        assert through.state == "closed"

    @pytest.mark.fault("an-awaiting-policy-asks-its-breaker-by-blocking")
    def test_a_policy_that_tries_again_asks_the_store_whose_probe_it_is(self, way: Way) -> None:
        """
        While it waited after a probe that failed, another process has got the next one: no second attempt is made.
        """
        still = Meanwhile()
        store = way.memory(still)
        one, two = (Breaker.shared(store, "p", staleness=1e-9, patience=20, environment=still) for _ in range(2))
        self.fail(way.asks, one, 5)
        self.fail(way.asks, two, 1)
        still.advance(31)
        still.asks = two
        script = Script(REFUSED)
        policy = Retry(
            breaker=one, base=40, cap=40, elapsed=600, jitter="none", jitter_reason="one caller", environment=still
        )

        with pytest.raises(Exception) as raised:
            way.asks.call(policy, script)
        stop = stop_of(raised.value)
        assert stop is not None
        assert [int] == [type(ticket) for ticket in still.told]
        assert (stop.reason, script.calls) == (StopReason.BREAKER, 1)

    @pytest.mark.parametrize("then", COLOURS)
    @pytest.mark.parametrize("first", COLOURS)
    def test_what_one_process_opened_is_open_in_the_next(self, tmp_path: Path, first: str, then: str) -> None:
        """
        Real processes, one after the other, in either colour: five failures in one, and the next needs only one.
        """
        url = f"sqlite:///{tmp_path}/shared.db"
        said = [
            subprocess.run(
                [sys.executable, "-W", "error", "-c", FAILING, TESTS, url, failures, colour],
                capture_output=True, text=True, timeout=60, check=False,
            )
            for failures, colour in (("5", first), ("1", then))
        ]  # fmt: skip

        assert [(one.stdout.strip(), one.stderr, one.returncode) for one in said] == [("open", "", 0)] * 2

    @pytest.mark.parametrize("options", [{"rate": 0.5}, {"probes": 2}, {"successes": 2}, {"age": 5}])
    def test_what_cannot_be_shared_is_refused(self, store: Counting, options: dict[str, Any]) -> None:
        """
        When it is made.
        """
        with pytest.raises(ConfigurationError, match="shared breaker"):
            Breaker.shared(store, "p", **options)
