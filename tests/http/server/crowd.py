"""A crowd of clients in a process of its own: so many connections, one request at the same time, what came back."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter

BODY = b'{"amount":1}'
REQUEST = (
    b"POST /charges HTTP/1.1\r\nHost: shop\r\nContent-Type: application/json\r\nConnection: close\r\n"
    b"Idempotency-Key: k\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
)


async def ask(port: int, ready: asyncio.Semaphore, start: asyncio.Event) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    ready.release()
    await start.wait()
    writer.write(REQUEST)
    answer = await reader.read()
    writer.close()
    return answer


async def main(port: int, size: int) -> dict[str, object]:
    ready, start = asyncio.Semaphore(0), asyncio.Event()
    asking = [asyncio.ensure_future(ask(port, ready, start)) for _ in range(size)]
    for _ in range(size):
        await ready.acquire()
    start.set()
    answers = await asyncio.gather(*asking)
    return {
        "statuses": Counter(one[9:12].decode() for one in answers),
        "bodies": sorted({one.partition(b"\r\n\r\n")[2].decode() for one in answers}),
        "replayed": sum(b"idempotency-replayed: true" in one for one in answers),
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))))
