"""
The listening socket: one of our own, or one that was handed to this process (systemd's socket activation).

A socket that somebody else holds open outlives this process. While a service is replaced, whoever connects waits in the
socket's queue for the next process, and nobody is refused.
"""

from __future__ import annotations

import errno
import logging
import os
import resource
import socket
from collections.abc import MutableMapping
from typing import NamedTuple

from onceward._core.errors import ConfigurationError
from onceward.service.network.port_holder import find_port_holder

log = logging.getLogger("onceward.service")

BACKLOG = 2_048
"""Connections that wait to be accepted; uvicorn has the same default."""
PORT_MAX = 65_535
FIRST_DESCRIPTOR = 3
"""Where systemd puts what it hands over."""
DESCRIPTORS_RESERVED = 128
"""Descriptors that are never connections: databases, workers, logs and the store need some forty of them."""


class ListeningSocket(NamedTuple):
    """A socket that listens."""

    socket: socket.socket
    is_handed_over: bool
    """Somebody else holds it, too: what waits in its queue is for whoever comes after us."""

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self.socket.getsockname()[1])


def listen(host: str, port: int) -> ListeningSocket:
    """A socket that listens: a port in use is an error of ours, and port 0 has become a real one."""
    kind = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's algorithm off for sockets that say they are TCP: else each response waits 40 ms for an ACK.
    listening = socket.socket(kind, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(BACKLOG)  # From now on callers wait instead of being refused.
    except OSError as error:
        listening.close()
        raise ConfigurationError(_refusal(host, port, error)) from None
    return ListeningSocket(listening, is_handed_over=False)


def _refusal(host: str, port: int, error: OSError) -> str:
    """Why nobody can listen there, and what to type."""
    start = f"cannot listen on {host}:{port}: "
    if error.errno == errno.EADDRINUSE:
        holder = find_port_holder(port)
        who = (
            f"{holder} is using it. Stop that"
            if holder is not None
            else "the port is in use. Stop the program that uses it"
        )
        other = port + 1 if port < PORT_MAX else 0
        return f"{start}{who}, or choose another port: --port {other} (0 for any free port)"
    if error.errno == errno.EACCES:
        return (
            f"{start}this user may not use that port. Choose one from 1024 on (--port 8600), or let systemd "
            "pass the socket"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return (
            f"{start}this machine has no such address. Use --host 127.0.0.1 (this machine only) or --host 0.0.0.0 (all)"
        )
    return f"{start}{error.strerror}. Choose another with --host and --port"


def handed_over_socket(environ: MutableMapping[str, str]) -> ListeningSocket | None:
    """
    The socket that this process was started with, as `sd_listen_fds(3)` describes; None if there is none.

    The variables are removed, so that worker processes do not take it for theirs.
    """
    pid, count = environ.pop("LISTEN_PID", ""), environ.pop("LISTEN_FDS", "")
    environ.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()) or not count:
        return None
    if count != "1":
        raise ConfigurationError(f"LISTEN_FDS must be 1, not {count[:20]!r}: the service listens on one socket")
    try:
        listening = socket.socket(fileno=FIRST_DESCRIPTOR)
        listens = listening.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise ConfigurationError(
            f"descriptor {FIRST_DESCRIPTOR}, which LISTEN_FDS announces, is not a socket: {error.strerror}"
        ) from None
    if not listens or listening.family not in (socket.AF_INET, socket.AF_INET6):
        listening.detach()  # It is not ours to close.
        raise ConfigurationError(
            f"descriptor {FIRST_DESCRIPTOR}, which LISTEN_FDS announces, must be a TCP socket that listens "
            "(ListenStream= with an address and a port, Accept=no)"
        )
    listening.set_inheritable(False)
    return ListeningSocket(listening, is_handed_over=True)


def fitting_connections(wanted: int) -> int:
    """
    How many connections there can be: as many as wanted, if the process may open so many files, and some to spare.

    The limit (`ulimit -n`) is raised as far as the system lets us.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + DESCRIPTORS_RESERVED
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    limit = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if limit > soft:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        except (OSError, ValueError):
            limit = soft
    if limit >= needed:
        return wanted
    fitting = limit - DESCRIPTORS_RESERVED
    if fitting < 1:
        raise ConfigurationError(
            f"this process may open {limit} files, and needs more than {DESCRIPTORS_RESERVED} besides its connections; "
            "raise the limit (ulimit -n, LimitNOFILE=)"
        )
    log.warning(
        "%d connections are allowed instead of %d: this process may open %d files, of which %d are kept for databases "
        "and logs. Raise the limit (ulimit -n, LimitNOFILE=)", fitting, wanted, limit, DESCRIPTORS_RESERVED,
    )  # fmt: skip
    return fitting
