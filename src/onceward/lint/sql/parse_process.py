"""
Parsing in another process, under limits: what crashes there is a finding here.

    python -m onceward.lint.sql.parse_process postgres OFFSET < statement

The process limits itself (memory, processor time, no core file, no file written) before it reads a byte, has a deep
stack for its one job, and prints statements as JSON. Whatever else comes back is a crash.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from typing import Final

from onceward._core.sql_lexer import Dialect
from onceward.lint.sql.readers import read_piece
from onceward.lint.sql.statement_codec import statements_of, to_document
from onceward.lint.sql.statements import Problem, Statement
from onceward.runtime.process_limits import limit_this_process

ADDRESS_BYTES: Final = 3 << 30
"""Half a gigabyte of it is the stack, of which only what is used takes memory."""
PROCESSOR_SECONDS: Final = 60
PATIENCE_SECONDS: Final = 180
"""For a process that neither works nor ends."""
STACK_BYTES: Final = 512 << 20
FRAMES_MAX: Final = 100_000


def parse_elsewhere(text: str, offset: int, dialect: Dialect) -> list[Statement]:
    """The statements in a piece of text, by another process; or a Problem that says what became of it."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(one for one in sys.path if one)}
    # -P: not a module that lies in the folder where somebody lints what others wrote.
    command = [sys.executable, "-P", "-m", "onceward.lint.sql.parse_process", dialect.value, str(offset)]
    try:
        done = subprocess.run(  # noqa: S603 - our own command
            command,
            input=text.encode(),
            capture_output=True,
            timeout=PATIENCE_SECONDS,
            env=environment,
            check=False,
        )
        if done.returncode == 0:
            return statements_of(json.loads(done.stdout))
    except (OSError, ValueError, KeyError, TypeError, RecursionError, subprocess.TimeoutExpired):
        pass
    message = "the parser crashed on this statement (too long, or nested too deeply); it was not checked"
    return [Problem(offset, offset + 1, "crash", message)]


def _main(words: list[str]) -> int:
    limit_this_process(address_bytes=ADDRESS_BYTES, processor_seconds=PROCESSOR_SECONDS)
    dialect, offset = Dialect(words[0]), int(words[1])
    text = sys.stdin.buffer.read().decode()
    printed: list[str] = []

    def read() -> None:
        printed.append(json.dumps([to_document(one) for one in read_piece(text, offset, dialect)]))

    sys.setrecursionlimit(FRAMES_MAX)
    threading.stack_size(STACK_BYTES)
    reader = threading.Thread(target=read)
    reader.start()
    reader.join()
    if not printed:
        return 1
    sys.stdout.write(printed[0])
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
