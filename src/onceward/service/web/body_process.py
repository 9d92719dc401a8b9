"""
Reads long bodies in another process: while one is read, the interpreter of the service does nothing else.

    python -P -m onceward.service.web.body_process        one body after the other, until its input ends

It reads a body as strictly as the service would, and sends it back in the shortest form that says the same. The service
reads that form in a tenth of the time. If there is no such process, or it dies, the service reads the body itself.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
from contextlib import suppress
from typing import BinaryIO, Final

from onceward._core.errors import RequestInvalid
from onceward._core.strict_json import parse_json
from onceward.runtime.environment import REAL
from onceward.runtime.process_limits import limit_this_process, lower_priority
from onceward.service.web.json_shape import check_shape

LONG_BYTES: Final = 262_144
"""A longer body is read there."""
ADDRESS_BYTES: Final = 1 << 30
PATIENCE_SECONDS: Final = 60.0
"""For a process that neither works nor ends; a busy machine may take seconds to start one."""
_ASKED = struct.Struct(">I")
_TOLD = struct.Struct(">?dI")


class BodyProcess:
    """One such process, started when it is needed. Whoever uses it waits for the one before."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self.used = 0.0
        """Processor seconds of the last body."""

    async def read(self, body: bytes) -> bytes | None:
        """The body in its shortest form; None if that did not come to pass. `RequestInvalid` if it is no JSON."""
        self.used = 0.0
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                told = await self._ask(body)
        except (OSError, EOFError, TimeoutError):
            await self.close()
            return None
        except asyncio.CancelledError:
            await self.close()  # It is in the middle of something that nobody wants any more.
            raise
        taken, self.used, text = told
        if not taken:
            raise RequestInvalid(text.decode())
        return text

    async def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _ask(self, body: bytes) -> tuple[bool, float, bytes]:
        if self._process is None or self._process.returncode is not None:
            self._process = await _start()
        to, back = self._process.stdin, self._process.stdout
        if to is None or back is None:
            raise EOFError
        to.write(_ASKED.pack(len(body)))
        to.write(body)
        taken, used, size = _TOLD.unpack(await back.readexactly(_TOLD.size))
        return taken, used, await back.readexactly(size)


async def _start() -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",  # Not a module that lies in the folder where the service was started.
        "-m",
        "onceward.service.web.body_process",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={"PYTHONPATH": ":".join(one for one in sys.path if one)},
        start_new_session=True,  # Ctrl-C is for the service, which then ends this.
    )


def shortest_form(body: bytes) -> bytes:
    """A body in as few bytes as say the same; `RequestInvalid` if it is no JSON, or has too much in it."""
    check_shape(body)
    return json.dumps(parse_json(body), ensure_ascii=False, separators=(",", ":")).encode()


def _main() -> int:
    lower_priority()
    limit_this_process(address_bytes=ADDRESS_BYTES)
    source, target = sys.stdin.buffer, sys.stdout.buffer
    while head := source.read(_ASKED.size):
        (size,) = _ASKED.unpack(head)
        _tell(target, source.read(size))
    return 0


def _tell(target: BinaryIO, body: bytes) -> None:
    began = REAL.process_cpu_seconds()
    try:
        taken, text = True, shortest_form(body)
    except RequestInvalid as error:
        taken, text = False, str(error).encode()
    target.write(_TOLD.pack(taken, REAL.process_cpu_seconds() - began, len(text)) + text)
    target.flush()


if __name__ == "__main__":
    sys.exit(_main())
