"""
One process of a race under a gate.

    python racer.py URL FILE NAME KEY...

It opens the gate, prints `ready`, waits for a line on its standard input (so that all start together), runs each key
and prints the answers as one line of JSON. The effect is a line in the file; its answer is the name.
"""

from __future__ import annotations

import json
import os
import sys

from onceward import Gate

WAIT_SECONDS = 120


def main(url: str, file: str, name: str, *keys: str) -> None:
    """Race."""
    log = os.open(file, os.O_WRONLY | os.O_APPEND)

    def effect(key: str) -> str:
        os.write(log, f"{key}\n".encode())
        return name

    with Gate(url, scope="test:racers", wait=WAIT_SECONDS) as gate:
        gate.records.get("nothing")  # Opened in earnest before the start.
        print("ready", flush=True)
        sys.stdin.readline()
        print(json.dumps({key: gate.run(key, lambda key=key: effect(key)) for key in keys}))


if __name__ == "__main__":
    main(*sys.argv[1:])
