"""
The standard library: sockets, TLS, http.client, urllib, asyncio, subprocess, sqlite3.
"""

from __future__ import annotations

from typing import Any

from onceward._core.verdict import Action, Certainty, Kind, Verdict
from onceward._core.verdict_tables.rules import (
    LOST,
    MISUSED,
    NEVER_LEFT,
    UNKNOWN,
    UNTRUSTED,
    JudgeFunction,
    Places,
    Table,
    frames_passed,
    read_attribute,
    wrapped_error_rule,
)

_MAKING_A_CONNECTION: Places = {"create_connection": ("socket",), "do_handshake": ("ssl",)}


def _by_place(error: Any, _judge: JudgeFunction) -> Verdict:
    """
    Broken while the connection was made, nothing was sent; broken later, or nobody knows when, it was under way.

    The error's own words do not tell: garbage on an open connection is a wrong version number, too, and a timeout is a
    timeout. Where it was raised does.
    """
    return NEVER_LEFT if frames_passed(error, _MAKING_A_CONNECTION) else LOST


def _system(error: Any, _judge: JudgeFunction) -> Verdict | None:
    """No route, no network: known where it comes from connecting. A missing file is an `OSError`, too."""
    return NEVER_LEFT if frames_passed(error, _MAKING_A_CONNECTION) else None


_SQLITE_BUSY, _SQLITE_LOCKED = 5, 6


def _sqlite_operational(error: Any, _judge: JudgeFunction) -> Verdict | None:
    code = read_attribute(error, "sqlite_errorcode")
    if isinstance(code, int) and code & 0xFF in (_SQLITE_BUSY, _SQLITE_LOCKED):
        return Verdict(Certainty.REJECTED, Kind.STATE, Action.SAME_KEY)
    return None


def _exit_group(error: Any, judge: JudgeFunction) -> Verdict:
    """Several errors at once: what all of them say. One that may have had its effect is enough for doubt."""
    verdicts = [judge(one) for one in error.exceptions]
    certainties = {verdict.certainty for verdict in verdicts}
    certainty = verdicts[0].certainty
    if len(certainties) > 1:
        harmless = certainties <= {Certainty.NOT_SENT, Certainty.REJECTED}
        certainty = Certainty.REJECTED if harmless else Certainty.UNKNOWN
    agreed = len({verdict.action for verdict in verdicts}) == 1
    waits = [verdict.wait for verdict in verdicts if verdict.wait is not None]
    return Verdict(
        certainty,
        verdicts[0].kind,
        verdicts[0].action if agreed else Action.NEVER,
        max(waits, default=None),
    )


TABLE: Table = {
    # A refused connection never was one. The others can come at any time: alone, they prove nothing.
    "builtins.ConnectionRefusedError": NEVER_LEFT,
    "builtins.ConnectionResetError": _by_place,
    "builtins.ConnectionAbortedError": _by_place,
    "builtins.BrokenPipeError": _by_place,
    "builtins.ConnectionError": _by_place,
    "builtins.TimeoutError": _by_place,
    "builtins.OSError": _system,
    "builtins.BaseExceptionGroup": _exit_group,
    "socket.gaierror": NEVER_LEFT,
    "socket.herror": NEVER_LEFT,
    "ssl.SSLCertVerificationError": UNTRUSTED,
    "ssl.SSLError": _by_place,
    "http.client.RemoteDisconnected": LOST,
    "http.client.IncompleteRead": LOST,
    "http.client.BadStatusLine": LOST,
    "http.client.InvalidURL": MISUSED,
    "http.client.ImproperConnectionState": MISUSED,
    "http.client.NotConnected": MISUSED,
    "urllib.error.ContentTooShortError": LOST,
    "urllib.error.URLError": wrapped_error_rule("reason"),
    # Whoever cancels has stopped waiting. That says nothing about what happened, and asks for no other try.
    "asyncio.exceptions.CancelledError": UNKNOWN,
    "concurrent.futures._base.CancelledError": UNKNOWN,
    "asyncio.exceptions.IncompleteReadError": LOST,
    "subprocess.TimeoutExpired": Verdict(Certainty.UNKNOWN, Kind.OTHER, Action.SAME_KEY),
    "sqlite3.IntegrityError": Verdict(Certainty.REJECTED, Kind.STATE, Action.NEVER),
    "sqlite3.OperationalError": _sqlite_operational,
}
