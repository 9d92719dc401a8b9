"""
Telling executions apart from outside.

Two witnesses: the answers themselves (two executions of one request must answer differently, in their whole body or at
a pointer such as /id), and a counter that the target publishes. Where neither can tell, nothing is called proved.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from onceward._core.errors import ConfigurationError
from onceward.testing.http_suite.raw_http import NoTargetResponse, TargetResponse, TargetUnreachable
from onceward.testing.http_suite.target import resolve_pointer
from onceward.testing.http_suite.target_client import NotShown, TargetClient

ALIKE = "answers of two executions are alike; give --unique or --count-url"


@dataclass(frozen=True, slots=True)
class ExecutionDetector:
    """What is known about a target before the first check: learned by sending one request three times."""

    client: TargetClient
    marks: bool
    """Whether replays carry the marker."""
    blind: str | None
    """Why answers do not tell executions apart; None if they do."""

    def tally(self) -> ExecutionTally:
        """Start counting."""
        return ExecutionTally(self, read_count(self.client))

    def mark_of(self, answer: TargetResponse) -> bytes:
        """What is another in every execution."""
        pointer = self.client.target.unique
        if pointer is None:
            return answer.body
        try:
            return repr(resolve_pointer(answer.json, pointer)).encode()
        except KeyError:
            raise NotShown(f"an answer has nothing at {pointer}; --unique must point into every answer") from None


@dataclass(frozen=True, slots=True)
class ExecutionTally:
    """Executions since it was begun."""

    detector: ExecutionDetector
    before: int | None

    def executions(self, answers: Iterable[TargetResponse]) -> int:
        """How many there were, by the counter and by what these answers say."""
        after = read_count(self.detector.client)
        counted = None if after is None or self.before is None else after - self.before
        if self.detector.blind is not None:
            if counted is None:
                raise NotShown(self.detector.blind)
            return counted
        told = len({self.detector.mark_of(answer) for answer in answers})
        return told if counted is None else max(told, counted)

    def counted(self) -> int | None:
        """How many there were by the counter alone; None if there is no counter."""
        after = read_count(self.detector.client)
        return None if after is None or self.before is None else after - self.before


def calibrate(client: TargetClient) -> ExecutionDetector:
    """Find out that the target works, whether it marks replays, and whether its answers tell executions apart."""
    asked = client.ask()
    try:
        first = client.send(asked)
        again = client.again(asked)
        elsewhere = client.send(asked.under(client.keyed(client.key())))
    except NoTargetResponse as error:
        raise TargetUnreachable(f"{client.target.origin} takes connections, and then: {error}") from None
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
        answer = connection.answer("GET")
    except NoTargetResponse as error:
        raise ConfigurationError(f"the counter: {error}") from None
    try:
        count = resolve_pointer(answer.json, counter.pointer)
    except KeyError:
        count = None
    if not answer.succeeded or not isinstance(count, int) or isinstance(count, bool):
        raise ConfigurationError(
            f"the counter answered {answer} and no whole number at {counter.pointer or 'its root'};"
            " check --count-url and --count-pointer"
        )
    return count


def _why_blind(detector: ExecutionDetector, first: TargetResponse, elsewhere: TargetResponse) -> str | None:
    """Why answers do not tell apart one request's executions under two keys; None if they do."""
    if not elsewhere.succeeded:
        return f"under another key the same request was answered {elsewhere}: answers tell nothing; give --count-url"
    try:
        return ALIKE if detector.mark_of(first) == detector.mark_of(elsewhere) else None
    except NotShown as error:
        raise ConfigurationError(str(error)) from None
