"""
A connection to one Redis server: checked when it opens, kept, and reopened when it breaks.

Commands are sent together: one write to the socket, then one reply is read for each. An error reply concerns its own
command only. If the connection breaks, the commands that have no reply yet are sent again, once, on a new connection.
That is safe, because every put carries a version of its own.

Each new connection checks that the server is durable: one that evicts, or that has no append-only file, forgets claims,
and an operation would run twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import redis.exceptions as exceptions

from onceward._core.errors import ConfigurationError
from onceward.stores import _redis_hash_rows as hash_rows
from onceward.stores import _redis_packed_rows as packed_rows
from onceward.stores._redis_line import RedisLine, line_of
from onceward.stores._redis_packer import Arg, pack_args
from onceward.stores._redis_rows import RedisCommand, tag_of
from onceward.stores._redis_schema import SCRIPTS as SCHEMA_SCRIPTS
from onceward.stores._redis_url import DriverConnection, NotReplicated, RedisAddress, may_send_again, translate_error

Args = tuple[Arg, ...] | bytes
SCRIPTS = (*packed_rows.SCRIPTS, *hash_rows.SCRIPTS, *SCHEMA_SCRIPTS)

_REFUSED = (
    "the Redis server {name} {why}: it may lose a claim, and the operation would run twice. {cure}. To accept that "
    "(for repeatable work, or in tests), add ?durability=volatile to the URL"
)


class RedisConnection:
    """One server. Used by one thread at a time: the pipeline in front of it sees to that."""

    def __init__(self, address: RedisAddress, find: Callable[[], RedisAddress] | None = None) -> None:
        self.address = address
        self._find = find
        """Says which server to connect to, each time; None: always the one of the address."""
        self._connection: DriverConnection | None = None
        self._replicas = address.options.replicas
        self._line: RedisLine | None = None
        """The socket of the connection, if we may use it ourselves."""

    def exchange(self, commands: Sequence[RedisCommand]) -> list[Any]:
        """Send commands; their replies, with the driver's error for each command that failed or has no reply."""
        line = self._line
        if line is None or self._replicas or len(commands) != 1:
            return self._exchange(commands)
        args = commands[0].args
        try:
            reply = line.ask(args if type(args) is bytes else pack_args(args))
        except exceptions.RedisError as error:
            self.drop()
            return self._exchange(commands, broken=True) if may_send_again(error) else [error]
        except BaseException:
            self.drop()  # An answer that nobody has read yet must not be taken for that of the next command.
            raise
        return [reply] if type(reply) is list else self._without_errors([args], [reply])

    def _exchange(self, commands: Sequence[RedisCommand], *, broken: bool = False) -> list[Any]:
        """The same, of any commands on any connection; `broken`: they have been sent, and the connection broke."""
        sent: list[Args] = [command.args for command in commands]
        waits = self._replicas > 0 and any(command.version for command in commands)
        if waits:
            sent.append(self._wait())
        replies: list[Any] = []
        for again in (False, True)[broken:]:
            try:
                failed = self._talk(self._connection or self._connected(), sent, replies)
                break
            except exceptions.RedisError as error:
                self.drop()
                if again or not may_send_again(error):
                    replies += [error] * (len(sent) - len(replies))
                    return self._confirmed(commands, replies, 0) if waits else replies
            except BaseException:
                self.drop()  # Answers that nobody has read yet must not be taken for those of the next commands.
                raise
        if failed:
            replies = self._without_errors(sent, replies, waits=waits)
        if not waits:
            return replies
        # What was sent again may have landed on the connection that broke, and nobody has waited for that.
        return self._confirmed(commands, replies, 0 if again else replies[-1])

    def _wait(self) -> Args:
        """Waits for replicas, half as long as for the server itself."""
        return ("WAIT", self._replicas, max(1, int(self.address.options.timeout_seconds * 500)))

    def _confirmed(self, commands: Sequence[RedisCommand], replies: list[Any], on: Any) -> list[Any]:
        """The replies; where a put is not on as many replicas as it should be, an error in their place."""
        asked = self._replicas
        confirmed = on if isinstance(on, int) else 0
        before: int | None = None
        for place, command in enumerate(commands):
            reply = replies[place]
            if not command.version or not isinstance(reply, list):
                continue
            has = confirmed
            if not reply[0]:
                if not _is_own(reply[2], command.version):
                    continue  # It wrote nothing, so nobody has to have it.
                # Sent before, and there: maybe by another connection, for which this one's WAIT does not speak.
                if confirmed >= asked and before is None:
                    before = self._reached(command.shard)
                has = confirmed if before is None else before
            if has < asked:
                replies[place] = NotReplicated(has, asked)
        return replies[: len(commands)]

    def _reached(self, shard: int) -> int:
        """How many replicas have everything that the server has by now: a write of our own, and a WAIT for it."""
        if self._connection is None:
            return 0  # Another connection may lead to another server.
        mark = f"{tag_of(self.address.options.prefix, shard)}waited"
        made, on = self._once([("SET", mark, "1", "PX", 1), self._wait()])
        return on if made == b"OK" and isinstance(on, int) else 0

    def line(self) -> RedisLine | None:
        """The socket of the connection, made if need be; None if only redis-py can use it."""
        self._connected()
        return self._line

    def open(self) -> None:
        """Connect now, and check the server."""
        try:
            self._connected()
        except exceptions.RedisError as error:
            self.drop()
            raise translate_error(error, self.address) from None

    def drop(self) -> None:
        """Let go of the connection; the next exchange makes another. In a forked child, the parent's stays as it is."""
        connection, self._connection, self._line = self._connection, None, None
        if connection is not None:
            connection.disconnect()

    def _connected(self) -> DriverConnection:
        if self._connection is None:
            if self._find is not None:
                self.address = self._find()
            connection = self.address.connection()
            try:
                connection.connect()
                if self._find is not None:
                    self._check_role(connection)
                if self.address.options.durable:
                    self._check(connection)
            except BaseException:
                connection.disconnect()
                raise
            self._connection, self._line = connection, line_of(connection)
        return self._connection

    def _talk(self, connection: DriverConnection, commands: Sequence[Args], replies: list[Any]) -> bool:
        """Send what has no reply yet, and read; whether errors are among the replies."""
        waiting = commands[len(replies) :] if replies else commands
        packed = pack_args(waiting[0]) if len(waiting) == 1 else b"".join(map(pack_args, waiting))
        failed = bool(replies) and any(isinstance(one, exceptions.RedisError) for one in replies)  # Before it broke.
        if self._line is not None:
            return self._line.talk(packed, len(waiting), replies) or failed
        connection.send_packed_command([packed])
        for _ in waiting:
            try:
                replies.append(connection.read_response(disable_decoding=True))
            except exceptions.ResponseError as error:
                replies.append(error)
                failed = True
        return failed

    def _without_errors(self, commands: Sequence[Args], replies: list[Any], *, waits: bool = False) -> list[Any]:
        """The replies, after what can be done about errors among them."""
        replies = self._with_scripts(commands, replies, waits=waits)
        if any(isinstance(reply, exceptions.ReadOnlyError) for reply in replies):
            self.drop()  # It has become a replica: the next exchange asks again who the primary is.
        return replies

    def _with_scripts(self, commands: Sequence[Args], replies: list[Any], *, waits: bool = False) -> list[Any]:
        """Load our scripts into a server that does not have them, and send the commands that failed for it again."""
        unknown = [place for place, one in enumerate(replies) if isinstance(one, exceptions.NoScriptError)]
        if unknown:
            teaching: list[Args] = [("SCRIPT", "LOAD", script.text) for script in SCRIPTS]
            if waits:
                unknown.append(len(commands) - 1)
            again = self._once([*teaching, *(commands[place] for place in unknown)])[len(teaching) :]
            for place, reply in zip(unknown, again, strict=True):
                replies[place] = reply
        return replies

    def _once(self, commands: Sequence[Args]) -> list[Any]:
        replies: list[Any] = []
        try:
            self._talk(self._connected(), commands, replies)
        except exceptions.RedisError as error:
            self.drop()
            replies += [error] * (len(commands) - len(replies))
        except BaseException:
            self.drop()
            raise
        return replies

    # What the server must be like.

    def _check_role(self, connection: DriverConnection) -> None:
        """A Sentinel may be late to hear of a failover: what it names must say by itself that it is a primary."""
        replies: list[Any] = []
        self._talk(connection, [("ROLE",)], replies)
        if not isinstance(replies[0], list) or replies[0][0] != b"master":
            raise exceptions.ReadOnlyError("the Sentinels still name a server that is no longer a primary")

    def _check(self, connection: DriverConnection) -> None:
        """Refuse a server that may forget. One that does not say, or does not allow INFO, is refused as well."""
        replies: list[Any] = []
        self._talk(connection, [("INFO", "memory"), ("INFO", "persistence")], replies)
        lines = [line for reply in replies if isinstance(reply, bytes) for line in reply.decode().splitlines()]
        fields = {name: value for name, _, value in (line.partition(":") for line in lines)}
        if fields.get("loading", "0") != "0":
            # While it reads its append-only file, a server says that it has none.
            raise exceptions.BusyLoadingError("the server is reading its files")
        policy, log = fields.get("maxmemory_policy"), fields.get("aof_enabled")
        if policy is None or log is None:
            self._refuse("does not say whether it evicts and whether it has an append-only file", "Allow INFO")
        if policy != "noeviction":
            self._refuse(f"evicts keys when it is full ({policy})", "Set maxmemory-policy noeviction")
        if log != "1":
            self._refuse("has no append-only file", "Set appendonly yes (and appendfsync always, if you can)")

    def _refuse(self, why: str, cure: str) -> None:
        raise ConfigurationError(_REFUSED.format(name=self.address.name, why=why, cure=cure))


def _is_own(row: Any, version: bytes) -> bool:
    """Whether a put that did not land found what it writes, because it had landed before."""
    if isinstance(row, bytes):
        return packed_rows.version_of(row) == version
    return isinstance(row, list) and hash_rows.version_of(row) == version
