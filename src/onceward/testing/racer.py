"""
One process of a race: claims keys of a store, and says which it won.

    python -m onceward.testing.racer URL SCOPE HOW_MANY NAME

It opens the store, prints `ready`, waits for a line on its standard input (so that all start together), claims the keys
k0, k1, ... and prints one line of JSON: the keys it won, and whom it saw standing at each key.
"""

from __future__ import annotations

import json
import sys

from onceward.stores import open_store
from onceward.testing.conformance.rows import row


def main(argv: list[str]) -> int:
    """Race; `argv` is URL, scope, number of keys, name."""
    url, scope, keys, name = argv
    store = open_store(url)
    store.load(row(scope).id)  # Opened in earnest before the start, so that the race is about claiming.
    print("ready", flush=True)
    sys.stdin.readline()
    standings = {f"k{n}": store.put(row(scope, f"k{n}", operation=name), None) for n in range(int(keys))}
    store.close()
    won = [key for key, standing in standings.items() if standing.landed]
    seen = {key: standing.record.operation for key, standing in standings.items() if standing.record is not None}
    print(json.dumps({"won": won, "seen": seen}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
