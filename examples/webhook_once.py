"""
A webhook that is delivered again and again: processed once, recognised by the id that its sender gave it.

Senders deliver at least once: after a timeout, after an error, and sometimes twice at the same moment. A delivery
that fails before its effect does not use the event up: the next one is processed.
"""

from __future__ import annotations

import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from onceward import Gate, Operation

shipped: list[str] = []
"""The effect."""

warehouse_open = threading.Event()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        gate = Gate(f"sqlite:///{Path(folder) / 'inbox.db'}", scope="test:shop")

        # When it was delivered is not part of what it says: a redelivery is the same event.
        @gate.once(key="event:{event_id}", exclude=("delivered_at",))
        def on_paid(operation: Operation, event_id: str, order: str, delivered_at: float) -> dict[str, str]:
            if not warehouse_open.is_set():
                raise ConnectionRefusedError("the warehouse is closed")
            with operation.effect():
                shipped.append(order)
            return {"order": order, "status": "shipped"}

        def deliver(delivered_at: float) -> int:
            """What a web framework would call; answers with a status."""
            try:
                on_paid("evt_1", "o-17", delivered_at)
            except ConnectionRefusedError:
                return 503
            return 200

        print(f"1st delivery, the warehouse is closed: {deliver(1.0)}")
        warehouse_open.set()
        with ThreadPoolExecutor(8) as senders:
            statuses = list(senders.map(deliver, [2.0 + number for number in range(8)]))
        print(f"8 deliveries at once: {statuses}")
        print(f"a late one: {deliver(99.0)}")
        gate.close()
    print(f"10 deliveries, {len(shipped)} parcel")


if __name__ == "__main__":
    main()
