"""Clients that send one request each, as their users do."""

from __future__ import annotations

import asyncio
import http.client
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import closing
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import aiohttp
import anthropic
import httpx
import httpx2
import openai
import requests
import urllib3

BODY = b'{"amount": 1250}'
PATIENT = 10.0
"""Seconds for what must not time out, on a busy machine."""


class Limits(NamedTuple):
    """How long a client waits."""

    connect: float = PATIENT
    read: float = PATIENT


def _httpx(library: Any) -> Callable[[str, Limits], None]:
    context = ssl.create_default_context()  # Making one takes longer than the request.

    def send(url: str, limits: Limits) -> None:
        timeout = library.Timeout(PATIENT, connect=limits.connect, read=limits.read)
        with library.Client(timeout=timeout, verify=context, trust_env=False) as client:
            client.post(url, content=BODY).raise_for_status()

    return send


def _httpx_async(library: Any) -> Callable[[str, Limits], None]:
    context = ssl.create_default_context()

    async def work(url: str, limits: Limits) -> None:
        timeout = library.Timeout(PATIENT, connect=limits.connect, read=limits.read)
        async with library.AsyncClient(timeout=timeout, verify=context, trust_env=False) as client:
            (await client.post(url, content=BODY)).raise_for_status()

    return lambda url, limits: asyncio.run(work(url, limits))


def _requests(url: str, limits: Limits) -> None:
    with requests.Session() as session:
        session.trust_env = False
        session.post(url, data=BODY, timeout=tuple(limits)).raise_for_status()


class StatusError(Exception):
    """What a user of a client without one raises: it carries the response."""

    def __init__(self, response: Any) -> None:
        super().__init__(response.status)
        self.response = response


def _urllib3(url: str, limits: Limits, retries: int = 0) -> None:
    timeout = urllib3.Timeout(connect=limits.connect, read=limits.read)
    with urllib3.PoolManager(timeout=timeout, retries=retries) as pool:
        response = pool.request("POST", url, body=BODY)
        if response.status >= 400:
            raise StatusError(response)


def _aiohttp(url: str, limits: Limits) -> None:
    async def work() -> None:
        timeout = aiohttp.ClientTimeout(sock_connect=limits.connect, sock_read=limits.read)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.post(url, data=BODY) as response:
            await response.read()
            response.raise_for_status()

    asyncio.run(work())


def _openai(url: str, limits: Limits, max_retries: int = 0) -> None:
    timeout = httpx2.Timeout(PATIENT, connect=limits.connect, read=limits.read)
    with openai.OpenAI(api_key="none", base_url=url, max_retries=max_retries, timeout=timeout) as client:
        client.chat.completions.create(model="m", messages=[])


def _anthropic(url: str, limits: Limits, max_retries: int = 0) -> None:
    timeout = httpx2.Timeout(PATIENT, connect=limits.connect, read=limits.read)
    with anthropic.Anthropic(api_key="none", base_url=url, max_retries=max_retries, timeout=timeout) as client:
        client.messages.create(model="m", messages=[], max_tokens=1)


def _urllib(url: str, limits: Limits) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, BODY, min(limits)) as response:
            response.read()
    except urllib.error.HTTPError as error:
        error.close()
        raise


def _http_client(url: str, limits: Limits) -> None:
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    with closing(kind(str(parts.hostname), parts.port, timeout=min(limits))) as connection:
        connection.request("POST", "/", body=BODY)
        with connection.getresponse() as response:
            response.read()
        if response.status >= 400:
            raise StatusError(response)


def _socket(url: str, limits: Limits) -> None:
    """By hand, as a driver does; an end before the answer's is found out by itself."""
    parts = urlsplit(url)
    with socket.create_connection((str(parts.hostname), parts.port), timeout=min(limits)) as plain:
        line = plain
        if parts.scheme == "https":
            line = ssl.create_default_context().wrap_socket(plain, server_hostname=parts.hostname)
        line.sendall(b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY))
        answer = b""
        while piece := line.recv(65_536):
            answer += piece
        head, _, body = answer.partition(b"\r\n\r\n")
        if not head or (b"Content-Length: 100" in head and len(body) < 100):
            raise ConnectionError("the answer ended early")


CLIENTS: dict[str, Callable[..., None]] = {
    "httpx": _httpx(httpx),
    "httpx-async": _httpx_async(httpx),
    "httpx2": _httpx(httpx2),
    "httpx2-async": _httpx_async(httpx2),
    "requests": _requests,
    "urllib3": _urllib3,
    "aiohttp": _aiohttp,
    "openai": _openai,
    "anthropic": _anthropic,
    "urllib": _urllib,
    "http.client": _http_client,
    "socket": _socket,
}
