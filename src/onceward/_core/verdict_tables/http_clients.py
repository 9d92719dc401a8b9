"""
HTTP clients and the SDKs on top of them: httpx and httpx2, httpcore, requests, urllib3, aiohttp, openai, anthropic.
"""

from __future__ import annotations

from typing import Any

from onceward._core.verdict import Action, Certainty, Kind, Verdict
from onceward._core.verdict_tables.rules import (
    GARBLED,
    LOST,
    MISUSED,
    NEVER_LEFT,
    UNTRUSTED,
    JudgeFunction,
    Places,
    Table,
    connection_error_rule,
    frames_passed,
    read_attribute,
    wrapped_error_rule,
)

_SENDING: Places = {"urlopen": ("urllib3.connectionpool",)}
_REPEATED_5XX = Verdict(Certainty.UNKNOWN, Kind.UPSTREAM, Action.SAME_KEY)


def _max_retries(error: Any, judge: JudgeFunction) -> Verdict | None:
    """urllib3 has tried several times: the last reason speaks for the last try only."""
    verdict = judge(reason) if isinstance(reason := read_attribute(error, "reason"), BaseException) else None
    if verdict is None or verdict.certainty is not Certainty.NOT_SENT:
        return verdict
    for frame in frames_passed(error, _SENDING):
        for earlier in read_attribute(frame.f_locals.get("retries"), "history") or ():
            if judge(read_attribute(earlier, "error")).happened is not False:
                return verdict._replace(certainty=Certainty.UNKNOWN)
    return verdict


# Raised where a connection is made, a tunnel included: no byte of the request has left.
_HTTPCORE: Table = {
    "ConnectError": connection_error_rule,
    "ConnectTimeout": NEVER_LEFT,
    "PoolTimeout": NEVER_LEFT,
    "ProxyError": NEVER_LEFT,
    "UnsupportedProtocol": MISUSED,
    "ReadTimeout": LOST,
    "WriteTimeout": LOST,
    "ReadError": LOST,
    "WriteError": LOST,
    "NetworkError": LOST,
    "TimeoutException": LOST,
    "RemoteProtocolError": LOST,
    # Some of these are found before sending, some after half a body.
    "LocalProtocolError": Verdict(Certainty.UNKNOWN, Kind.CLIENT, Action.NEVER),
}

_HTTPX: Table = {
    **_HTTPCORE,
    "InvalidURL": MISUSED,
    "CloseError": LOST,
    "DecodingError": GARBLED,
    "TooManyRedirects": GARBLED,
}

_URLLIB3: Table = {
    "NewConnectionError": NEVER_LEFT,
    "NameResolutionError": NEVER_LEFT,
    "ConnectTimeoutError": NEVER_LEFT,
    "EmptyPoolError": NEVER_LEFT,
    "ClosedPoolError": MISUSED,
    "LocationValueError": MISUSED,
    "ProxyError": wrapped_error_rule("original_error", otherwise=LOST),
    "SSLError": wrapped_error_rule(otherwise=LOST),
    "MaxRetryError": _max_retries,
    "ResponseError": _REPEATED_5XX,
    "ReadTimeoutError": LOST,
    "TimeoutError": LOST,
    "ProtocolError": LOST,
    "IncompleteRead": LOST,
    "DecodeError": GARBLED,
}

_REQUESTS: Table = {
    "ConnectTimeout": wrapped_error_rule(otherwise=NEVER_LEFT),
    "ReadTimeout": LOST,
    "Timeout": LOST,
    "RetryError": wrapped_error_rule(otherwise=_REPEATED_5XX),
    "ConnectionError": wrapped_error_rule(otherwise=LOST),
    "ChunkedEncodingError": LOST,
    "ContentDecodingError": GARBLED,
    "TooManyRedirects": GARBLED,
    "MissingSchema": MISUSED,
    "InvalidSchema": MISUSED,
    "InvalidURL": MISUSED,
    "InvalidHeader": MISUSED,
}

_AIOHTTP: Table = {
    "ClientConnectorCertificateError": UNTRUSTED,
    "ServerFingerprintMismatch": UNTRUSTED,
    "ClientConnectorError": connection_error_rule,
    "ConnectionTimeoutError": NEVER_LEFT,
    # The proxy refused to open the tunnel; its status is not the server's.
    "ClientHttpProxyError": NEVER_LEFT,
    "InvalidURL": MISUSED,
    "ServerTimeoutError": LOST,
    "ServerDisconnectedError": LOST,
    "ClientPayloadError": LOST,
    "ClientOSError": LOST,
    "ClientConnectionError": LOST,
}


# Their own tries are counted in `earlier_requests.py`.
_SDK: Table = {"APIConnectionError": wrapped_error_rule(otherwise=LOST)}


def _under(prefix: str, table: Table) -> Table:
    return {f"{prefix}.{name}": rule for name, rule in table.items()}


TABLE: Table = {
    **_under("httpx", _HTTPX),
    **_under("httpx2", _HTTPX),
    **_under("httpcore", _HTTPCORE),
    **_under("httpcore2", _HTTPCORE),
    **_under("urllib3.exceptions", _URLLIB3),
    **_under("requests.exceptions", _REQUESTS),
    **_under("aiohttp.client_exceptions", _AIOHTTP),
    **_under("openai", _SDK),
    **_under("anthropic", _SDK),
}
