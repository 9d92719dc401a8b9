"""
How many times did it run? Counting executions from outside.

There are two ways: the responses (two executions of one request must differ, in their whole body or at a pointer such
as /id), and a counter that the target publishes. Where neither works, the check is not shown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from onceward._core.errors import ConfigurationError
from onceward.testing.http_suite.raw_http import NoTargetResponse, TargetResponse, TargetUnreachable
from onceward.testing.http_suite.target import resolve_pointer
from onceward.testing.http_suite.target_client import NotShown, TargetClient

EQUAL = "responses of two executions are equal; give --unique or --count-url"


@dataclass(frozen=True, slots=True)
class ExecutionDetector:
    """What is known about a target before the first check: learned by sending one request three times."""

    client: TargetClient
    marks: bool
    """Whether replays carry the marker."""
    blind: str | None
    """Why responses do not tell executions apart; None if they do."""

    def tally(self) -> ExecutionTally:
        """Start counting."""
        return ExecutionTally(self, read_count(self.client))

    def mark_of(self, response: TargetResponse) -> bytes:
        """The part of a response that differs in every execution."""
        pointer = self.client.target.unique
        if pointer is None:
            return response.body
        try:
            return repr(resolve_pointer(response.json, pointer)).encode()
        except KeyError:
            raise NotShown(f"a response has nothing at {pointer}; --unique must point into every response") from None


@dataclass(frozen=True, slots=True)
class ExecutionTally:
    """Executions since it was begun."""

    detector: ExecutionDetector
    before: int | None

    def executions(self, responses: Iterable[TargetResponse]) -> int:
        """How many there were, by the counter and by what these responses say."""
        after = read_count(self.detector.client)
        counted = None if after is None or self.before is None else after - self.before
        if self.detector.blind is not None:
            if counted is None:
                raise NotShown(self.detector.blind)
            return counted
        distinct = len({self.detector.mark_of(response) for response in responses})
        return distinct if counted is None else max(distinct, counted)

    def counted(self) -> int | None:
        """How many there were by the counter alone; None if there is no counter."""
        after = read_count(self.detector.client)
        return None if after is None or self.before is None else after - self.before


def calibrate(client: TargetClient) -> ExecutionDetector:
    """Find out that the target works, whether it marks replays, and whether its responses tell executions apart."""
    request = client.new_request()
    try:
        first = client.send(request)
        again = client.again(request)
        elsewhere = client.send(request.under(client.keyed(client.key())))
    except NoTargetResponse as error:
        raise TargetUnreachable(f"{client.target.origin} takes connections, but: {error}") from None
    except NotShown as error:
        raise TargetUnreachable(str(error)) from None
    if first.status >= 500:
        raise TargetUnreachable(f"a plain request was answered {first}: nothing can be shown with a target that fails")
    if not first.succeeded:
        raise ConfigurationError(
            f"a plain request was answered {first}; it must succeed. Check the path, --method, --body and --header"
        )
    read_count(client)
    detector = ExecutionDetector(client, client.is_marked(again), None)
    return ExecutionDetector(client, detector.marks, _why_blind(detector, first, elsewhere))


def read_count(client: TargetClient) -> int | None:
    """What the target's counter says; None if it has none."""
    counter = client.target.counter
    if counter is None:
        return None
    connection = client.opened(counter.origin)
    headers = client.target.headers if counter.origin == client.target.origin else ()
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    request = f"GET {counter.path} HTTP/1.1\r\nHost: {counter.origin.host_header}\r\n{lines}Connection: close\r\n\r\n"
    connection.send(request.encode("latin-1"))
    try:
        response = connection.read_response("GET")
    except NoTargetResponse as error:
        raise ConfigurationError(f"the counter: {error}") from None
    try:
        count = resolve_pointer(response.json, counter.pointer)
    except KeyError:
        count = None
    if not response.succeeded or not isinstance(count, int) or isinstance(count, bool):
        raise ConfigurationError(
            f"the counter answered {response} and no whole number at {counter.pointer or 'its root'};"
            " check --count-url and --count-pointer"
        )
    return count


def _why_blind(detector: ExecutionDetector, first: TargetResponse, elsewhere: TargetResponse) -> str | None:
    """Why responses do not tell apart one request's executions under two keys; None if they do."""
    if not elsewhere.succeeded:
        return f"the same request under another key was answered {elsewhere}: not comparable; give --count-url"
    try:
        return EQUAL if detector.mark_of(first) == detector.mark_of(elsewhere) else None
    except NotShown as error:
        raise ConfigurationError(str(error)) from None
