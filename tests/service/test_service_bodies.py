"""Bodies: who may send one, how many bytes may be under way, who pays for reading them, and that all is given back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from raw_http import RawConnection, answered, memory_of, push, until
from service_support import Served
from starlette.requests import ClientDisconnect, Request

from onceward import ConfigurationError, OncewardError
from onceward.errors import BodyTooLarge, RateLimitError
from onceward.messaging.inbox import Inbox
from onceward.messaging.inbox.sample_event import signed_sample
from onceward.messaging.inbox.stored_sources import StoredSource
from onceward.messaging.webhooks import PacSpace
from onceward.runtime.environment import REAL, Environment
from onceward.service.access import Accounts, Allowance, Resource, Totals
from onceward.service.network.http_protocol import READ_BYTES
from onceward.service.network.server import server_of
from onceward.service.network.sockets import listen
from onceward.service.settings import Settings, load_settings, store_url_of
from onceward.service.web.bodies import SMALL_SECONDS_MAX, STEP_BYTES, BodyIntake, BodyParser

SECRET = "canarysecret0123456789abcdef0123"
LONG = 5_000_000
MANY = 300
"""Connections of one attacker."""


class Sender:
    """A body in pieces, and what was held on the account as each was asked for."""

    def __init__(self, accounts: Accounts, *pieces: bytes, length: int | None = None, ends: bool = True) -> None:
        self.accounts = accounts
        self.pieces = list(pieces)
        self.ends = ends
        self.held: list[int] = []
        headers = [(b"transfer-encoding", b"chunked")] if length is None else [(b"content-length", b"%d" % length)]
        self.request = Request({"type": "http", "method": "POST", "headers": headers}, self.receive)

    async def receive(self) -> Any:
        self.held.append(self.accounts.held[Resource.BODY_BYTES])
        if not self.pieces and not self.ends:
            return {"type": "http.disconnect"}
        piece = self.pieces.pop(0) if self.pieces else b""
        return {"type": "http.request", "body": piece, "more_body": bool(self.pieces) or not self.ends}


def some_accounts(total: int = 10 * LONG) -> Accounts:
    return Accounts(lambda: 0.0, Allowance(body_bytes=total), Totals(body_bytes=total))


async def taken(sender: Sender, most: int = LONG) -> bytes:
    with BodyIntake(sender.accounts.of_tenant("acme"), most=most) as intake:
        return await intake.read(sender.request)


class TestIntake:
    """Held before it is read, given back however it ends."""

    @pytest.mark.fault("bodies-are-read-before-they-are-held")
    def test_all_that_is_announced_is_held_before_the_first_byte_is_asked_for(self) -> None:
        """
        Content-Length: one look at the budget.
        """
        sender = Sender(some_accounts(), b"x" * 700, b"y" * 300, length=1_000)

        assert len(asyncio.run(taken(sender))) == 1_000
        assert sender.held == [1_000, 1_000]
        assert sender.accounts.held[Resource.BODY_BYTES] == 0

    @pytest.mark.fault("chunked-bodies-are-not-held")
    def test_what_comes_in_chunks_is_held_in_growing_steps(self) -> None:
        """
        Before each piece is asked for there is room for as much as the server may have read.
        """
        pieces = [b"x" * STEP_BYTES] * 20
        sender = Sender(some_accounts(), *pieces)

        assert len(asyncio.run(taken(sender))) == 20 * STEP_BYTES
        assert all(held >= (number + 1) * STEP_BYTES for number, held in enumerate(sender.held))
        assert len(set(sender.held)) < 10, "steps grow: few looks at the budget"
        assert sender.accounts.held[Resource.BODY_BYTES] == 0

    @pytest.mark.fault("bodies-too-long-are-read")
    def test_what_is_too_long_or_too_much_is_refused_unread(self) -> None:
        """
        By what it announces: nothing is asked for, nothing stays held.
        """
        long = Sender(some_accounts(), b"x", length=LONG + 1)
        much = Sender(some_accounts(total=1_000), b"x", length=1_001)

        with pytest.raises(BodyTooLarge):
            asyncio.run(taken(long))
        with pytest.raises(RateLimitError) as refused:
            asyncio.run(taken(much))
        assert (long.held, much.held) == ([], [])
        assert refused.value.retry_after_seconds
        assert (long.accounts.held[Resource.BODY_BYTES], much.accounts.held[Resource.BODY_BYTES]) == (0, 0)

    @pytest.mark.parametrize("ends", ["disconnect", "cancel", "too long", "second account"])
    @pytest.mark.fault("bodies-stay-held")
    def test_everything_is_given_back_however_it_ends(self, ends: str) -> None:
        """
        The client goes, the call is cancelled, a chunked body is longer than it may be, another account refuses.
        """

        async def attempted(accounts: Accounts) -> str:
            if ends == "disconnect":
                with pytest.raises(ClientDisconnect):
                    await taken(Sender(accounts, b"x" * 100, length=1_000, ends=False))
            elif ends == "cancel":
                sender = Sender(accounts, length=1_000)
                sender.request = Request(sender.request.scope, asyncio.Event().wait)  # type: ignore[arg-type]
                task = asyncio.create_task(taken(sender))
                await asyncio.sleep(0)
                held = accounts.held[Resource.BODY_BYTES]
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                return f"{held} held"
            elif ends == "too long":
                with pytest.raises(BodyTooLarge):
                    await taken(Sender(accounts, *[b"x" * 60] * 10), most=500)
            else:
                small = some_accounts(total=10).of_tenant("acme")
                sender = Sender(accounts, length=1_000)
                with pytest.raises(RateLimitError), BodyIntake(accounts.of_tenant("acme"), small, most=LONG) as intake:
                    await intake.read(sender.request)
            return "refused"

        accounts = some_accounts()

        assert asyncio.run(attempted(accounts)) == ("1000 held" if ends == "cancel" else "refused")
        assert accounts.held[Resource.BODY_BYTES] == 0


class CountedCpu(Environment):
    """Work takes as long as it says."""

    used = 0.0

    def thread_cpu_seconds(self) -> float:
        return self.used


class TestParsing:
    """Processor time is paid for, and one tenant's large bodies do not stand before everybody's."""

    @pytest.mark.fault("parsing-costs-nothing")
    def test_a_tenant_pays_for_what_it_sends_and_waits_when_it_has_used_too_much(self) -> None:
        """
        Also for what is refused as invalid; the wait is as long as the debt needs to be made up for.
        """
        environment = CountedCpu()
        accounts = Accounts(lambda: 0.0, Allowance(cpu_burst=1.0, cpu_per_second=0.5))
        account, parser = accounts.of_tenant("acme"), BodyParser(environment)

        def invalid() -> None:
            environment.used += 0.75
            raise ConfigurationError("no")

        async def run() -> list[tuple[str, float | None]]:
            found = []
            for size in (10, 1_000_000, 1_000_000):
                try:
                    await parser.run(account, invalid, size)
                except OncewardError as error:
                    found.append((error.code, error.retry_after_seconds))
            return found

        refused = asyncio.run(run())

        assert refused[:2] == [(ConfigurationError.code, None)] * 2
        assert refused[2] == (RateLimitError.code, 1.0), "half a second of debt, at half a second a second"
        assert accounts.of_tenant("acme").usage().cpu_seconds == 1.5
        assert accounts.of_tenant("other").cpu_left() == 1.0
        assert len(parser) == 0

    @pytest.mark.fault("small-bodies-cost-nothing", "a-small-body-pays-for-others")
    @pytest.mark.parametrize(("took", "paid"), [(0.000_25, 0.000_25), (2.0, SMALL_SECONDS_MAX)])
    @pytest.mark.parametrize("valid", [True, False])
    def test_a_small_body_pays_for_its_time_but_not_for_others(self, took: float, paid: float, valid: bool) -> None:
        """
        What it took, also if it is refused; of a turn that somebody else had in between, no more than a millisecond.
        """
        now = [5.0]

        class Ticking(Environment):
            """A clock that goes on at each look."""

            def monotonic(self) -> float:
                now[0] += took
                return now[0]

        accounts = Accounts(lambda: 0.0, Allowance(cpu_burst=1.0, cpu_per_second=0.5))
        read = b'{"sql": "SELECT 1"}' if valid else b'{"sql": '
        with nullcontext() if valid else pytest.raises(OncewardError):
            BodyParser(Ticking()).parse_at_once(accounts.of_tenant("acme"), read, dict[str, str])

        assert accounts.of_tenant("acme").usage().cpu_seconds == pytest.approx(paid)

    @pytest.mark.fault("large-bodies-of-one-tenant-stand-before-all")
    def test_a_large_body_waits_for_one_of_each_other_tenant_at_most(self) -> None:
        """
        One tenant has ten under way; another's is parsed second.
        """
        accounts, order = some_accounts(), []
        parser = BodyParser()

        def work(name: str) -> Any:
            return lambda: order.append(name)

        async def run() -> None:
            greedy = [asyncio.create_task(parser.run(accounts.of_tenant("a"), work("a"), LONG)) for _ in range(10)]
            await asyncio.sleep(0)
            modest = asyncio.create_task(parser.run(accounts.of_tenant("b"), work("b"), LONG))
            await asyncio.gather(*greedy, modest)

        asyncio.run(run())

        assert order[:2] == ["a", "b"]
        assert len(order) == 11

    def test_large_bodies_are_parsed_one_at_a_time(self) -> None:
        """
        The interpreter runs one thread at a time anyhow; more would only keep the event loop from its turn.
        """
        accounts, parser, running, most = some_accounts(), BodyParser(), [0], [0]
        guard = threading.Lock()

        def work() -> None:
            with guard:
                running[0] += 1
                most[0] = max(most[0], running[0])
            REAL.sleep(0.005)
            with guard:
                running[0] -= 1

        async def run() -> None:
            await asyncio.gather(*(parser.run(accounts.of_tenant(str(n)), work, LONG) for n in range(8)))

        asyncio.run(run())

        assert most == [1]


@pytest.mark.fault("bodies-are-buffered-unasked")
def test_what_nobody_has_asked_for_stays_in_the_sockets() -> None:
    """
    The head of a request is there, and the application does something else: the server has read what came with it, and
    no more, however much the client sends.
    """

    async def run() -> int:
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            begun.set()
            await go_on.wait()

        server = server_of(app, Settings(port=0), listening := listen("127.0.0.1", 0))
        server.capture_signals = nullcontext  # type: ignore[method-assign, assignment]
        serving = asyncio.create_task(server.serve())
        _, writer = await asyncio.open_connection("127.0.0.1", listening.port)
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 50000000\r\n\r\n" + b"x" * 20_000_000)
        await begun.wait()
        protocol: Any = next(iter(server.server_state.connections))
        for _ in range(200):  # Enough for the event loop to read megabytes, if it wanted.
            await asyncio.sleep(0.001)
        buffered = len(protocol.cycle.body)
        go_on.set()
        writer.close()
        server.should_exit = True
        await serving
        return buffered

    assert asyncio.run(run()) <= READ_BYTES


@pytest.fixture
def hooked(tmp_path: Path) -> Iterator[Served]:
    """A service with a source."""
    with Inbox(store_url_of(Settings(folder=str(tmp_path))), stored_sources=True) as inbox:
        inbox.store_source(
            StoredSource("pac", "test:demo", PacSpace(), ("env:HOOK_SECRET",), "json:loads", None, 5, None).checked()
        )
    served = Served.started(tmp_path, "--hooks-threads", "0", "--flood-burst", "20", HOOK_SECRET=SECRET)
    yield served
    served.stop()


def event(served: Served, id: str, source: str = "127.0.0.1") -> int:
    """A right delivery; its status."""
    headers, body = signed_sample(PacSpace(), SECRET, id, now=REAL.wall_us() / 1e6)
    with RawConnection(served.address, source=source) as one:
        named = {name.replace("-", "_"): value for name, value in headers.items()}
        answer = one.head("POST", "/hooks/pac", Content_Length=str(len(body)), **named).send(body).answer()
    return 0 if answer is None else answer.status


@pytest.mark.slow
@pytest.mark.fault("hooks-read-bodies-for-anybody")
def test_a_crowd_that_sends_to_no_source_is_answered_before_its_bodies(hooked: Served) -> None:
    """
    300 connections send all but the last byte of five megabytes each, 1.4 GB, which no call ever completes: answered
    404, then 429, and the service has not grown by a tenth of that.
    """
    before = memory_of(hooked.process.pid)
    crowd = [RawConnection(hooked.address) for _ in range(MANY)]
    for one in crowd:
        one.head("POST", "/hooks/nobody", Content_Length=str(LONG))
    push(crowd, b"x" * (LONG - 1))
    answers = [one.answer() for one in answered(crowd, MANY)]
    grown = memory_of(hooked.process.pid) - before
    for one in crowd:
        one.close()

    statuses = [one.status for one in answers if one is not None]
    assert len(statuses) == MANY
    assert set(statuses) == {404, 429}
    assert grown < 140


@pytest.mark.slow
@pytest.mark.fault("hooks-hold-no-bytes")
def test_a_crowd_that_sends_to_a_source_has_bounded_bytes_under_way(hooked: Served) -> None:
    """
    The name of a source is no secret. 300 connections to it, each short of its last byte: most are refused with 429,
    the service stays small, and events of the right sender are taken meanwhile, from its address and from the crowd's.
    """
    before = memory_of(hooked.process.pid)
    crowd = [RawConnection(hooked.address, source="127.0.0.2") for _ in range(MANY)]
    for one in crowd:
        one.head("POST", "/hooks/pac", Content_Length=str(LONG))
    push(crowd, b"x" * (LONG - 1))
    answers = [one.answer() for one in answered(crowd, MANY - 6)]
    grown = memory_of(hooked.process.pid) - before
    taken = [event(hooked, "e-1"), event(hooked, "e-2", source="127.0.0.2")]
    for one in crowd:
        one.close()

    assert {one.status for one in answers if one is not None} == {429}
    assert grown < 140
    assert taken == [200, 200]


@pytest.mark.fault("hooks-a-flood-may-send-long-bodies")
def test_an_address_with_too_many_wrong_signatures_sends_short_bodies_only(hooked: Served) -> None:
    """
    Long ones are refused by their head, 429; a right signature on a short one is never slowed.
    """

    def wrong() -> int:
        with RawConnection(hooked.address) as one:
            answer = one.head("POST", "/hooks/pac", Content_Length="2").send(b"{}").answer()
        return 0 if answer is None else answer.status

    until(lambda: wrong() == 429)
    with RawConnection(hooked.address) as one:
        long = one.head("POST", "/hooks/pac", Content_Length=str(LONG)).answer()  # Not a byte of the body.

    assert long is not None
    assert (long.status, long.code) == (429, "rate_limited")
    assert int(long.headers["retry-after"]) >= 1
    assert event(hooked, "e-3") == 200


NARROW = ("--body-bytes", "20000000", "--body-bytes-per-tenant", "10000000")
"""Room for two of the longest bodies of one tenant."""
TWO = {"sql": "SELECT length(?), length(?), length(?), length(?)", "params": ["x" * 900_000] * 4}


@pytest.fixture
def narrow(tmp_path: Path) -> Iterator[Served]:
    """A service with room for few bodies."""
    served = Served.started(tmp_path, *NARROW)
    yield served
    served.stop()


@pytest.mark.fault("calls-hold-no-bytes")
def test_one_tenants_bodies_do_not_keep_out_another(narrow: Served) -> None:
    """
    Twenty bodies of five megabytes that never end: two are being read, the others 429 with Retry-After. Another tenant
    sends as much meanwhile. When the two have gone, the first tenant may send again.
    """
    path, other = narrow.database(), narrow.new_token("other", role="admin")
    narrow.call("PUT", "/v1/db/other/d", token=other)
    crowd = [RawConnection(narrow.address) for _ in range(20)]
    for one in crowd:
        one.head("POST", f"{path}/query", narrow.token, Content_Type="application/json", Content_Length=str(LONG))
    refused = [one.answer() for one in answered(crowd, 18)]
    meanwhile = narrow.call("POST", "/v1/db/other/d/query", TWO, token=other)
    for one in crowd:
        one.close()
    again = until(lambda: is_fine(narrow.call("POST", f"{path}/query", TWO)))

    assert [(one.status, one.code) for one in refused if one is not None] == [(429, "rate_limited")] * 18
    assert all(one is None or int(one.headers["retry-after"]) >= 1 for one in refused)
    assert meanwhile.status == 200
    assert again


@pytest.mark.fault("bodies-stay-held")
def test_a_body_that_does_not_come_in_time_is_given_back(tmp_path: Path) -> None:
    """
    408 to the two that there is room for; then there is room again.
    """
    served = Served.started(tmp_path, *NARROW, "--receive-seconds", "1")
    path = served.database()
    slow = [RawConnection(served.address) for _ in range(2)]
    for one in slow:
        one.head("POST", f"{path}/query", served.token, Content_Type="application/json", Content_Length=str(LONG))
    answers = [one.answer() for one in slow]
    after = until(lambda: is_fine(served.call("POST", f"{path}/query", TWO)))
    for one in slow:
        one.close()
    served.stop()

    assert [one.status for one in answers if one is not None] == [408, 408]
    assert after


def is_fine(heard: Any) -> bool:
    return bool(heard.status == 200)


@pytest.mark.fault("refused-bodies-are-drained-for-ever")
def test_what_follows_a_refusal_is_not_read_for_ever(narrow: Served) -> None:
    """
    The refusal can be read though a body was on its way; after eight megabytes of it the connection ends.
    """
    with RawConnection(narrow.address) as one:
        refused = one.head("POST", "/v1/db/demo/d/query", Content_Length="1000000000").answer()
        cut = False
        for _ in range(500):
            try:
                one.socket.sendall(b"x" * 1_000_000)
            except OSError:
                cut = True
                break

    assert refused is not None
    assert refused.status == 401
    assert cut


def test_a_budget_below_the_longest_body_is_refused() -> None:
    """
    One caller has half of what is free at most: with less, nobody could send the longest body.
    """
    with pytest.raises(ConfigurationError, match="--body-bytes"):
        load_settings({"body_bytes": "5000000"}, {})
