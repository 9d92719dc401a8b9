"""
Clients of two replicas, who send a keyed write until it is answered; and the judge of what they were told.

Every client has keys of its own and sends each to one replica, then to the other, and so on. Half of the statements are
ones that the service sends in one round trip with their record, the other half take two.
"""

from __future__ import annotations

import http.client
import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple
from urllib.parse import urlsplit

from service_support import Served

from servers.postgres import PostgresServer

TABLE = "CREATE TABLE events (number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text NOT NULL, sender int)"
"""The id is not unique: what was written twice is there twice."""
INSERTS = (
    "INSERT INTO events (id, sender) VALUES (?, ?)",
    "INSERT INTO events (id, sender) VALUES (?, ?) RETURNING number",
)
AGAIN = frozenset((408, 409, 425, 429, 500, 502, 503, 504))
"""With these a client sends the same once more, as any client would."""
PAUSE_SECONDS = 0.02
CLIENTS = 12
HANGS_SECONDS = 120.0
BUCKET_SECONDS = 0.05
AROUND_SECONDS = 1.5


class Response(NamedTuple):
    """What a client is told."""

    status: int
    is_replayed: bool
    body: bytes


class Verdict(NamedTuple):
    """What the judge found."""

    acknowledged: int
    lost: int
    """Acknowledged, and no row."""
    doubled: int
    """More than one row."""
    changed: int
    """Acknowledged, and the same key is answered in another way now."""
    longest_seconds: float
    """From the first sending of a request to its answer."""
    sent_again: Counter[str]


class ReplicaClient:
    """One client's connections, one to each replica."""

    def __init__(self, replicas: Sequence[Served], path: str, first: int) -> None:
        self._addresses = [urlsplit(one.address).netloc for one in replicas]
        self._token = replicas[0].token
        self._path = path
        self._open: dict[str, http.client.HTTPConnection] = {}
        self._turns = itertools.cycle([*self._addresses[first % 2 :], *self._addresses[: first % 2]])

    def send(self, key: str, sender: int) -> Response:
        """Send the write of a key to the replica whose turn it is; errors are those of the connection."""
        address = next(self._turns)
        connection = self._open.get(address) or http.client.HTTPConnection(address, timeout=HANGS_SECONDS)
        self._open[address] = connection
        number = int(key.rpartition("-")[2])
        body = json.dumps({"sql": INSERTS[number % len(INSERTS)], "params": [key, sender]})
        headers = {
            "Authorization": f"Bearer {self._token}", "Content-Type": "application/json", "Idempotency-Key": key,
        }  # fmt: skip
        try:
            connection.request("POST", f"{self._path}/query", body, headers)
            response = connection.getresponse()
            return Response(response.status, response.headers.get("Idempotency-Replayed") == "true", response.read())
        except (OSError, http.client.HTTPException):
            self._open.pop(address).close()
            raise

    def until_answered(self, key: str, sender: int, again: Counter[str]) -> Response:
        """Send until there is an answer; what made it be sent again is counted."""
        while True:
            try:
                response = self.send(key, sender)
                if response.status not in AGAIN:
                    return response
                again[json.loads(response.body).get("code", str(response.status))] += 1
            except (OSError, http.client.HTTPException) as error:
                again[type(error).__name__] += 1
            time.sleep(PAUSE_SECONDS)

    def close(self) -> None:
        """Hang up."""
        for connection in self._open.values():
            connection.close()


class Load:
    """Clients who send for as long as they are let."""

    def __init__(self, replicas: Sequence[Served], path: str) -> None:
        self._replicas = replicas
        self._path = path
        self.acknowledged: dict[str, bytes] = {}
        self.refused: dict[str, Response] = {}
        self.sent_again: Counter[str] = Counter()
        self._waits: dict[str, float] = {}
        self.answered_at: list[float] = []
        """When each acknowledged request was answered, on the monotonic clock."""
        self._enough = threading.Event()
        self._clients = [threading.Thread(target=self._run, args=(number,)) for number in range(CLIENTS)]
        for client in self._clients:
            client.start()

    def stop(self) -> None:
        """Let everybody end with an answer."""
        self._enough.set()
        for client in self._clients:
            client.join(HANGS_SECONDS)
            assert not client.is_alive(), "a client never got an answer"

    def _run(self, sender: int) -> None:
        client = ReplicaClient(self._replicas, self._path, sender)
        for number in itertools.count():
            if self._enough.is_set():
                break
            key = f"c{sender}-{number}"
            began = time.monotonic()
            response = client.until_answered(key, sender, self.sent_again)
            ended = time.monotonic()
            self._waits[key] = ended - began
            if response.status != 200:
                self.refused[key] = response
                break
            self.acknowledged[key] = response.body
            self.answered_at.append(ended)
        client.close()

    def answers_around(self, moment: float) -> list[int]:
        """Acknowledged answers for each `BUCKET_SECONDS`, from `AROUND_SECONDS` before a moment to as long after it."""
        counts = [0] * round(2 * AROUND_SECONDS / BUCKET_SECONDS)
        for at in self.answered_at:
            bucket = int((at - moment + AROUND_SECONDS) // BUCKET_SECONDS)
            if 0 <= bucket < len(counts):
                counts[bucket] += 1
        return counts

    def judge(self, server: PostgresServer, database: str) -> Verdict:
        """Look at the rows where the writer is now; then send every acknowledged request once more."""
        [(schema,)] = server.execute("SELECT schema_name FROM onceward.onceward_databases", database)
        found = server.execute(f"SELECT id, count(*) FROM {schema}.events GROUP BY id", database)
        rows = {str(id): int(str(count)) for id, count in found}
        lost = sum(key not in rows for key in self.acknowledged)
        doubled = sum(count > 1 for count in rows.values())
        with ThreadPoolExecutor(CLIENTS) as pool:
            keys = list(self.acknowledged)
            changed = sum(pool.map(self._changed, (keys[n::CLIENTS] for n in range(CLIENTS))))
        longest = max(self._waits.values(), default=0.0)
        return Verdict(len(self.acknowledged), lost, doubled, changed, longest, self.sent_again)

    def _changed(self, keys: Sequence[str]) -> int:
        """How many of these are not answered as they were."""
        client = ReplicaClient(self._replicas, self._path, 0)
        changed = 0
        for key in keys:
            response = client.until_answered(key, int(key[1:].partition("-")[0]), Counter())
            changed += not response.is_replayed or response.body != self.acknowledged[key]
        client.close()
        return changed
