"""
Checks a long statement in another process: a parser that crashes on it crashes there, and the statement is refused.

    python -P -m onceward.service.sql.postgres.parser_process < {"sql": ..., "functions": [...], "types": [...]}

PostgreSQL's parser takes stack for every level of a tree, and a text such as `1+1+1+...` is a deep tree. The process
starts with an empty environment, limits itself before it reads a byte, and has a deep stack for its one job.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from typing import Any, Final

from onceward.protocol.errors import SqlError, SqlKind
from onceward.runtime.process_limits import limit_this_process
from onceward.service.sql.postgres.statement_checker import CatalogNames, CheckedStatement, StatementChecker
from onceward.service.sql.worker_errors import from_wire, to_wire

ADDRESS_BYTES: Final = 2 << 30
"""A quarter of it is the stack, of which only what is used takes memory."""
PROCESSOR_SECONDS: Final = 5
PATIENCE_SECONDS: Final = 60.0
"""For a process that neither works nor ends; a busy machine may take seconds to start one."""
STACK_BYTES: Final = 512 << 20
FRAMES_MAX: Final = 100_000
AT_ONCE: Final = 2
"""Such processes of one engine."""


class LongStatements:
    """Checks statements that are too long or too deep for this process."""

    def __init__(self, catalog: CatalogNames) -> None:
        self._names = {"functions": sorted(catalog.functions), "types": sorted(catalog.types)}
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def check(self, sql: str) -> CheckedStatement:
        """Say what a statement is, or refuse it: `SqlError`."""
        async with self._turns:
            printed = await _ask(json.dumps({"sql": sql, **self._names}).encode())
        try:
            found: dict[str, Any] = json.loads(printed)
        except ValueError:
            raise SqlError(
                SqlKind.TOO_LARGE,
                "the statement is too long or too deeply nested to be checked",
                hint="put values into parameters, or send it in parts",
            ) from None
        if "error" in found:
            raise from_wire(found["error"])
        return CheckedStatement(str(found["verb"]), bool(found["reads"]))


async def _ask(question: bytes) -> bytes:
    """What the process printed; nothing, if it did not come to an end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",  # Not a module that lies in the folder where the service was started.
        "-m",
        "onceward.service.sql.postgres.parser_process",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={"PYTHONPATH": ":".join(one for one in sys.path if one)},
    )
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            printed, _ = await process.communicate(question)
    except TimeoutError:
        return b""
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return printed if process.returncode == 0 else b""


def _checked(question: dict[str, Any]) -> dict[str, Any]:
    names = CatalogNames(frozenset(question["functions"]), frozenset(question["types"]))
    try:
        return StatementChecker(names).check(question["sql"])._asdict()
    except SqlError as refused:
        return {"error": to_wire(refused)}


def _main() -> int:
    limit_this_process(address_bytes=ADDRESS_BYTES, processor_seconds=PROCESSOR_SECONDS)
    question = json.loads(sys.stdin.buffer.read())
    printed: list[str] = []
    sys.setrecursionlimit(FRAMES_MAX)
    threading.stack_size(STACK_BYTES)
    checker = threading.Thread(target=lambda: printed.append(json.dumps(_checked(question))))
    checker.start()
    checker.join()
    if not printed:
        return 1
    sys.stdout.write(printed[0])
    return 0


if __name__ == "__main__":
    sys.exit(_main())
