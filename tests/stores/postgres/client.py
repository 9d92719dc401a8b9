"""
A client that may die.

    python client.py URL KEY [FAILPOINT SKIP]      one operation under a gate, killed at a failpoint
    python client.py URL fork                      a store that is used on both sides of a fork
"""

from __future__ import annotations

import json
import os
import sys

from onceward import Gate
from onceward.runtime import failpoints
from onceward.stores import open_store
from onceward.testing.store_suite.rows import row

LEASE_SECONDS = 1.0


def run(url: str, key: str, armed: list[str]) -> object:
    """Run the operation; its effect is a line on standard output."""
    gate = Gate(open_store(url), scope="test:crash", lease=LEASE_SECONDS, wait=0)
    if armed:
        failpoints.arm(armed[0], "kill", skip=int(armed[1]))
    try:
        return gate.run(key, lambda: print("effect", flush=True) or "done")
    finally:
        gate.close()


def fork(url: str) -> None:
    """Use the store before, in the child and after."""
    store = open_store(url)
    before = store.put(row("test:fork", "before"), None)
    child = os.fork()
    if child == 0:
        landed = [store.put(row("test:fork", f"child{n}"), None).landed for n in range(3)]
        store.close()
        os._exit(0 if all(landed) else 1)
    after = [store.put(row("test:fork", f"parent{n}"), None).landed for n in range(3)]
    _, status = os.waitpid(child, 0)
    after += [store.put(row("test:fork", "last"), None).landed]
    store.close()
    print(json.dumps([before.landed, after, os.waitstatus_to_exitcode(status)]))


if __name__ == "__main__":
    if sys.argv[2] == "fork":
        fork(sys.argv[1])
    else:
        run(sys.argv[1], sys.argv[2], sys.argv[3:])
