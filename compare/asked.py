"""
The process that is asked: it makes one peer's adapter, calls it, and prints a line of JSON for each call.

    python -m compare.asked '{"adapter": "onceward", "place": {...}, "work": {...}, "calls": [["key", {}]]}'

It is started with the interpreter that has the peer, stopped, continued and killed from outside.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from compare import adapters
from compare.peers import module_of
from compare.place import Place, Unstorable, Work

MESSAGE_MAX = 200
PAUSE_SECONDS = 0.25


def outcome_of(call: Any) -> dict[str, Any]:
    """What a caller got: a value or an error."""
    try:
        return returned(call())
    except Exception as error:
        return raised(error)


def returned(value: Any) -> dict[str, Any]:
    """A value, shortened where it is long."""
    if isinstance(value, Unstorable):
        return {"returned": "the object"}
    shown = json.loads(json.dumps(value, default=repr))
    if len(json.dumps(shown)) > MESSAGE_MAX:
        return {"returned": f"{len(json.dumps(shown))} bytes"}
    return {"returned": shown}


def raised(error: BaseException) -> dict[str, Any]:
    """An error's type and the beginning of its message, without what changes with each run."""
    return {"raised": type(error).__name__, "message": " ".join(str(error).split())[:MESSAGE_MAX]}


def patiently(adapter: Any, key: str | None, request: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Call again until there is a result, as a caller would that has time."""
    until = time.monotonic() + seconds
    while True:
        seen = outcome_of(lambda: adapter.call(key, request))
        if "returned" in seen or time.monotonic() > until:
            return seen
        time.sleep(PAUSE_SECONDS)


async def cancelled(adapter: Any, work: Work, key: str, request: dict[str, Any]) -> list[dict[str, Any]]:
    """Cancel a call after its effect, then call again."""
    task = asyncio.create_task(adapter.acall(key, request))
    while not (work.folder / f"held-{work.name}").exists():
        await asyncio.sleep(PAUSE_SECONDS)
        if task.done():
            break
    task.cancel()
    try:
        first = returned(await task)
    except BaseException as error:
        first = raised(error)
    (work.folder / "go").touch()
    try:
        second = returned(await asyncio.wait_for(adapter.acall(key, request), 15))
    except Exception as error:
        second = raised(error)
    return [first, second]


def cpu(adapter: Any, times: int, name: str) -> dict[str, Any]:
    """CPU time of this process for a call that is new, and for one that replays, in microseconds."""
    for number in range(times // 10):
        adapter.call(f"warm-{name}-{number}", {"amount": 1})
    gc.collect()
    measured = {}
    for case in ("fresh", "replay"):
        begin = time.process_time()
        for number in range(times):
            adapter.call(f"cpu-{name}-{number}", {"amount": 1})
        measured[case] = round((time.process_time() - begin) / times * 1e6, 1)
    return measured


def main() -> None:
    """Do what the argument says."""
    spec = json.loads(sys.argv[1])
    place = Place(**{**spec["place"], "folder": Path(spec["place"]["folder"])})
    os.chdir(place.folder)
    work = Work(place.folder, **spec["work"])
    if spec["code"]:
        adapters.__path__.insert(0, spec["code"])  # A deployment: other code under the same name.
    adapter = importlib.import_module(module_of(spec["adapter"])).make(place, work)
    if spec["how"] == "nested":
        work.nested = lambda key: adapter.call(key, {})
    if spec.get("together"):
        _wait_for_the_others(place.folder, spec["together"], work.name)
    for line in _answers(spec, adapter, work):
        print(json.dumps(line), flush=True)
    with contextlib.suppress(Exception):
        adapter.close()
    sys.stdout.flush()
    os._exit(0)  # A peer's threads do not keep us.


def _answers(spec: dict[str, Any], adapter: Any, work: Work) -> Any:
    calls, how = spec["calls"], spec["how"]
    if how == "cpu":
        yield cpu(adapter, spec["times"], work.name)
    elif how == "cancelled":
        yield from asyncio.run(cancelled(adapter, work, *calls[0]))
    elif how == "patiently":
        yield from (patiently(adapter, key, request, spec["seconds"]) for key, request in calls)
    else:
        for key, request in calls:
            yield outcome_of(lambda key=key, request=request: adapter.call(key, request))


def _wait_for_the_others(folder: Path, number: int, name: str) -> None:
    (folder / f"ready-{name}").touch()
    while len(list(folder.glob("ready-*"))) < number:
        time.sleep(0.002)


if __name__ == "__main__":
    main()
