"""
The clients: each does one operation after the other, and sends each again until it has an answer.

Some answers are thrown away, as a network would: then the operation is sent again although it was done. An operation
that was answered twice must have been answered the same.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field

from soak.subject import Attempt, Keys, Subject

LOST_ANSWERS = 0.1
"""Of all answers: enough for every minute, and for the controls to go red at once."""
PAUSE_SECONDS = 0.1
"""Before an operation is sent again."""


@dataclass
class Known:
    """What all clients together have been told."""

    acknowledged: dict[str, str] = field(default_factory=dict)
    """By operation, what the answer said."""
    pending: dict[str, Attempt] = field(default_factory=dict)
    """Sent at least once, and not answered yet."""
    sent_again: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    changed: list[str] = field(default_factory=list)
    """Operations that were answered in two ways."""

    @property
    def sent(self) -> set[str]:
        """Everything that was ever sent."""
        return {*self.acknowledged, *self.pending}


class Crowd:
    """So many clients of one subject."""

    def __init__(self, subject: Subject, clients: int, keys: Keys, seed: int) -> None:
        self.known = Known()
        self._subject = subject
        self._clients = clients
        self._keys = keys
        self._chance = random.Random(seed)
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        """Everybody starts."""
        self._tasks = [asyncio.create_task(self._client(number)) for number in range(self._clients)]

    async def end(self) -> None:
        """Everybody stops, wherever they are: what they had sent stays unknown to them."""
        for task in self._tasks:
            task.cancel()
        ended = await asyncio.gather(*self._tasks, return_exceptions=True)
        for one in ended:
            if isinstance(one, Exception):
                raise one

    async def ask_again(self) -> int:
        """Send whatever is unknown until it is known; how many there were."""
        waiting = list(self.known.pending.values())
        clients = asyncio.Semaphore(self._clients)

        async def again(number: int, attempt: Attempt) -> None:
            async with clients:
                await self._until_told(number % self._clients, attempt)

        await asyncio.gather(*(again(number, attempt) for number, attempt in enumerate(waiting)))
        return len(waiting)

    async def _client(self, client: int) -> None:
        turn = 0
        while True:
            number = turn * self._clients + client
            turn += 1
            await self._until_told(client, Attempt(f"{self._subject.name}-{number:08d}", number, 0, self._keys))

    async def _until_told(self, client: int, attempt: Attempt) -> None:
        known = self.known
        while True:
            known.pending[attempt.operation] = attempt = attempt._replace(tries=attempt.tries + 1)
            known.sent_again += attempt.tries > 1
            try:
                said = await self._subject.send(client, attempt)
            except Exception as error:
                known.errors[type(error).__name__] += 1
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            before = known.acknowledged.setdefault(attempt.operation, said)
            if before != said:
                known.changed.append(attempt.operation)
            if self._chance.random() >= LOST_ANSWERS:
                del known.pending[attempt.operation]
                return
