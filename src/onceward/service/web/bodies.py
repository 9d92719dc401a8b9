"""
Bodies of requests: held on an account before they are read, parsed a few at a time, and given back with the call.

    with BodyIntake(account, most=5_000_000) as intake:     # given back at the end of the block, however it ends
        read = await intake.read(request)                   # RateLimitError: nothing of it was read
        value = await parser.parse(account, read, Kind)     # the tenant pays for the processor time

Who may send a body at all is decided before: by its token, or by its source and address. Bytes are counted as they are
sent; a body that is being parsed takes a few times as much.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from onceward._core.errors import BodyTooLarge, RateLimitError
from onceward._core.strict_json import parse_json
from onceward.http.server.thread_offload import HEAVY_BYTES
from onceward.runtime.environment import REAL, Environment
from onceward.service.access.accounts import Account, Hold, Resource
from onceward.service.web.body_process import LONG_BYTES, BodyProcess
from onceward.service.web.json_shape import check_shape
from onceward.service.web.request_head import head_of

T = TypeVar("T")

STEP_BYTES = 131_072
"""Held ahead of a body that does not say how long it is: as much as the server reads before it is asked for more."""
SMALL_BYTES = 1_024
"""Up to here the usual clock is read: a thread's processor time is a system call, which takes as long as parsing."""
SMALL_SECONDS_MAX = 0.001
"""More than that a small body never takes: then somebody else had the processor meanwhile."""


class BodyIntake:
    """The body of one request. A context manager: what is held is given back at its end."""

    def __init__(self, *accounts: Account, most: int) -> None:
        self._accounts = accounts
        self._most = most
        self._holds: list[Hold] = []
        self._held = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.give_back()

    def give_back(self) -> None:
        """Nobody has the body any more."""
        for hold in self._holds:
            hold.give_back()

    async def read(self, request: Request) -> bytes:
        """The body as it came. One that is too long, or more than may be under way now, is refused unread."""
        declared = declared_length(request)
        self._hold_up_to(STEP_BYTES if declared is None else self._checked(declared))
        receive, pieces, size, more = request.receive, list[bytes](), 0, True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                raise ClientDisconnect
            piece: bytes = message.get("body", b"")
            more = message.get("more_body", False)
            size = self._checked(size + len(piece))
            if not more and not pieces and declared is not None:
                return piece  # The whole of it, as most come.
            pieces.append(piece)
            if declared is None and self._held < size + STEP_BYTES:
                self._hold_up_to(2 * size + STEP_BYTES)
        return b"".join(pieces)

    def _checked(self, size: int) -> int:
        if size > self._most:
            raise BodyTooLarge(f"the body is too long: at most {self._most} bytes are allowed. Nothing was run")
        return size

    def _hold_up_to(self, size: int) -> None:
        size = min(size, self._most)
        if size > self._held:
            for account in self._accounts:
                self._holds.append(account.hold(Resource.BODY_BYTES, size - self._held))
            self._held = size


def declared_length(request: Request) -> int | None:
    """What Content-Length says; None if the body comes in chunks."""
    head = head_of(request.scope)
    if b"transfer-encoding" in head:
        return None
    text = head.first(b"content-length")
    if not text:
        return 0
    return int(text) if text.isdigit() and len(text) < 16 else None


def refuse_debtor(account: Account) -> None:
    """`RateLimitError` for whoever has used more processor time than comes back: until that is made up for."""
    if account.is_in_debt:
        wait, who = account.cpu_wait(0.0), account.owner.partition(":")[0]
        raise RateLimitError(
            f"this {who} has used up its processor time; nothing was run. Send it again in {wait:.0f} s",
            retry_after_seconds=wait,
        )


class BodyParser:
    """
    Work on bodies, paid for by whose they are.

    A large body is parsed in a thread, but the interpreter runs one thread at a time: so large ones are parsed one
    after the other, and each account has one in that line. Between two of them everybody else goes on. The longest are
    read in another process first (`BodyProcess`).
    """

    def __init__(self, environment: Environment = REAL) -> None:
        self._environment = environment
        self._elsewhere = BodyProcess()
        self._turn = asyncio.Lock()
        self._lines: dict[str, tuple[asyncio.Lock, int]] = {}
        """Whose large bodies wait, and how many."""

    async def run(self, account: Account, work: Callable[[], T], size: int) -> T:
        """Call `work`, which processes `size` bytes, and take the processor seconds from the account."""
        meter = _CpuMeter(self._environment)
        try:
            if size <= HEAVY_BYTES:
                return meter.run(work)
            async with self._alone(account):
                return await asyncio.to_thread(meter.run, work)
        finally:
            account.spend_cpu(meter.used)

    async def parse(self, account: Account, read: bytes, kind: type[T], *, exact: bool = False) -> T:
        """A body of JSON as a value of a type; the account pays."""
        if len(read) <= HEAVY_BYTES:
            return self.parse_at_once(account, read, kind, exact=exact)
        if len(read) > LONG_BYTES and not exact:
            async with self._alone(account):
                try:
                    short = await self._elsewhere.read(read)
                finally:
                    account.spend_cpu(self._elsewhere.used)
            if short is not None:
                return await self.run(account, partial(msgspec.json.decode, short, type=kind), len(short))
        return await self.run(account, partial(_parsed, read, kind, exact), len(read))

    def parse_at_once(self, account: Account, read: bytes, kind: type[T], *, exact: bool = False) -> T:
        """The same of a body that is not large, without waiting for anything."""
        is_small = len(read) <= SMALL_BYTES
        clock = self._environment.monotonic if is_small else self._environment.thread_cpu_seconds
        began = clock()
        try:
            return _parsed(read, kind, exact)
        finally:
            took = clock() - began
            account.spend_cpu(min(took, SMALL_SECONDS_MAX) if is_small else took)

    async def close(self) -> None:
        """End what runs for this."""
        await self._elsewhere.close()

    @asynccontextmanager
    async def _alone(self, account: Account) -> AsyncIterator[None]:
        """One large body at a time, and one of each account in the line for that."""
        async with self._in_line(account.owner), self._turn:
            refuse_debtor(account)  # Those in front may have used it up.
            yield

    @asynccontextmanager
    async def _in_line(self, owner: str) -> AsyncIterator[None]:
        lock, waiting = self._lines.get(owner, (asyncio.Lock(), 0))
        self._lines[owner] = (lock, waiting + 1)
        try:
            async with lock:
                yield
        finally:
            lock, waiting = self._lines.pop(owner)
            if waiting > 1:
                self._lines[owner] = (lock, waiting - 1)

    def __len__(self) -> int:
        return len(self._lines)


def _parsed(read: bytes, kind: type[T], exact: bool) -> T:
    if len(read) > HEAVY_BYTES:
        check_shape(read)
    return msgspec.convert(parse_json(read, exact=exact), kind)


class _CpuMeter:
    """Processor seconds of a function, in whichever thread it runs."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self.used = 0.0

    def run(self, work: Callable[[], T]) -> T:
        began = self._environment.thread_cpu_seconds()
        try:
            return work()
        finally:
            self.used = self._environment.thread_cpu_seconds() - began
