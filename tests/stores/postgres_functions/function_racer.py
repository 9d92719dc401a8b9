"""
One process of a race, in SQL or in Python, which may be killed on its way.

    python function_racer.py URL NAME sql|python KEY POINT KEY...

It connects, prints `ready`, and waits for a line on its standard input, so that all start together. Each KEY is one
transaction: claim, one row in `charges`, settle, commit. At the first KEY it kills itself at POINT (`claimed`,
`worked`, `settled`; `-`: nowhere). In the end it prints its answers as one line of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys

import psycopg
from functions_support import REQUEST, SCOPE, claim, settle

from onceward import Gate


def main(url: str, name: str, language: str, first: str, point: str, *keys: str) -> None:
    """Race."""

    def reached(here: str, key: str) -> None:
        if (here, key) == (point, first):
            os.kill(os.getpid(), signal.SIGKILL)

    def work(connection: psycopg.Connection[object], key: str) -> str:
        reached("claimed", key)
        connection.execute("INSERT INTO charges (key, who) VALUES (%s, %s)", (key, name))
        reached("worked", key)
        return name

    def in_sql(key: str) -> str:
        claimed = claim(connection, key)
        if claimed.verdict != "fresh":
            connection.commit()
            return str(claimed.value)
        answer = str(settle(connection, claimed, work(connection, key)))
        reached("settled", key)
        connection.commit()
        return answer

    def in_python(key: str) -> str:
        return gate.atomic(connection, key, lambda: work(connection, key), request=REQUEST)

    with psycopg.connect(url) as connection, Gate(url, scope=SCOPE) as gate:
        gate.records.get("nothing")  # Opened in earnest before the start.
        operate = in_sql if language == "sql" else in_python
        print("ready", flush=True)
        sys.stdin.readline()
        print(json.dumps({key: operate(key) for key in (first, *keys)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
