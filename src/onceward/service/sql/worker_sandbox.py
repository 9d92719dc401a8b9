"""
What a worker gives up before it runs anybody's SQL, should that SQL ever break out of SQLite.

    environment   it is started with none of the service's variables, so with no secret     `worker_environment`
    user          it is not root, and sees nothing but the databases (chroot)               if the service is root
    privileges    none can be gained; nobody may look into its memory, and it has no core file
    landlock      no file but the databases can be touched, no TCP connection made          Linux 5.13 and later
    seccomp       no socket, program, process, signal or new code                           Linux, x86-64 and ARM64

The order is that of `enter_sandbox`, which a worker calls after everything is imported and before its first request.
What the system does not have is left out and reported, or refused if the sandbox is required. All tenants' databases
are in the one folder that a worker reaches: the wall between tenants is SQLite's, and this one is around all of them.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import onceward
import onceward.adapters.sqlite3  # Found by its name when a gate joins a transaction, when nothing can be imported.
from onceward._core.errors import ConfigurationError
from onceward.runtime.environment import REAL
from onceward.service.sql.landlock import LandlockRules, landlock_version
from onceward.service.sql.seccomp import give_up_privileges, process_control, restrict_system_calls
from onceward.service.sql.worker_user import SAME, WorkerUser, find_worker_user, hand_over
from onceward.stores._migration_scripts import migration_scripts

MODES = ("auto", "required", "off")
LAYERS = ("environment", "user", "privileges", "landlock", "seccomp")
_PASSED_ON = ("LD_LIBRARY_PATH", "PYTHONHOME", "TZ")
"""Variables that Python may need to start, and the time zone, which SQL can ask for."""
_SET_DUMPABLE = 4


class SandboxOptions(NamedTuple):
    """What is wanted for the workers of one engine."""

    mode: str = "auto"
    """`auto`: what the system has; `required`: all of it, or no worker starts; `off`: nothing but the limits."""
    user: str = SAME
    """As whom workers run: see `find_worker_user`."""
    layers: tuple[str, ...] = LAYERS
    """Which of them; fewer only to test the others."""


AUTO = SandboxOptions()
"""What the system has, as the user that the engine runs as."""


class SandboxReport(NamedTuple):
    """What is in force in a worker."""

    active: list[str]
    missing: list[str]
    """With the reason for each."""

    def line(self) -> str:
        """One line for a log or a terminal."""
        text = ", ".join(self.active) or "none"
        return text if not self.missing else f"{text}; not in force: {', '.join(self.missing)}"


class WorkerSandbox:
    """The engine's side: the environment that workers are started with, and the orders that they get."""

    def __init__(self, folder: Path, options: SandboxOptions) -> None:
        if options.mode not in MODES:
            raise ConfigurationError(f"worker_sandbox must be one of {', '.join(MODES)}, not {options.mode[:40]!r}")
        self._folder = folder
        self._options = options
        on = options.mode != "off"
        self._layers = [one for one in LAYERS if on and one in options.layers]
        self._user = find_worker_user(options.user) if "user" in self._layers else None
        if self._user is None and "user" in self._layers:
            self._layers.remove("user")
        self._named = options.user not in ("", SAME)
        self._missing: list[str] = []

    def prepare(self) -> None:
        """Give the databases to the workers' user. Before the first worker starts."""
        if self._user is None:
            return
        try:
            hand_over(self._folder, self._user)
        except OSError as error:
            if self._named or self._options.mode == "required":
                raise ConfigurationError(
                    f"the databases in {self._folder} cannot be given to the workers' user ({self._user.uid}): "
                    f"{error.strerror}. Allow it (CAP_CHOWN), or set worker_user to {SAME!r}"
                ) from None
            self._layers.remove("user")
            self._missing = [f"user (the databases cannot be given away: {error.strerror})"]

    def orders(self) -> dict[str, Any]:
        """What a worker is told, as data."""
        return {
            "folder": str(self._folder),
            "layers": self._layers,
            "user": self._user,
            "missing": self._missing,
            "required": [*LAYERS] if self._options.mode == "required" else ["user"] if self._named else [],
        }

    def environment(self) -> Mapping[str, str] | None:
        """The variables of a worker; None: those of the service."""
        return worker_environment() if "environment" in self._layers else None


def worker_environment() -> dict[str, str]:
    """What Python needs to start a worker from anywhere, and nothing else of the service's environment."""
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    places = [str(Path(onceward.__file__).resolve().parent.parent), os.environ.get("PYTHONPATH", "")]
    # Nothing is imported from the working directory.
    return {**passed, "PYTHONPATH": os.pathsep.join(filter(None, places)), "PYTHONSAFEPATH": "1"}


class EnteredSandbox(NamedTuple):
    """A worker's side: what is in force, and what the databases' paths have become."""

    report: SandboxReport
    outside: str = ""
    """The part of a path that is above the root of this process."""

    def inside(self, path: str) -> str:
        """A path as this process sees it."""
        return path.removeprefix(self.outside)


def enter_sandbox(orders: Mapping[str, Any] | None) -> EnteredSandbox:
    """Give up everything that was ordered and that the system allows, for good."""
    layers = [] if orders is None else list(orders["layers"])
    if orders is None or not layers:
        return EnteredSandbox(SandboxReport([], []))
    if threading.active_count() > 1:
        raise ConfigurationError("this is a mistake in Onceward: a worker has threads before it is confined")
    _touch_what_is_needed_later()
    active = ["environment"] if "environment" in layers else []
    missing: list[str] = list(orders["missing"])
    outside = ""
    rules: LandlockRules | None = None
    if "landlock" in layers:
        try:
            rules = LandlockRules(orders["folder"])
        except OSError as error:
            missing.append(f"landlock ({error})")
    _leave_the_service(orders["folder"])
    if "user" in layers:
        try:
            os.chroot(orders["folder"])
        except OSError as error:
            missing.append(f"user (chroot: {error})")
        else:
            outside = orders["folder"]
            active.append(_become(WorkerUser(*orders["user"])))
    try:
        if "privileges" in layers:
            process_control(_SET_DUMPABLE, 0)
            active.append("privileges")
        give_up_privileges()
        if rules is not None:
            rules.restrict()
            active.append(f"landlock {landlock_version()}")
    except OSError as error:
        missing.append(f"privileges and landlock ({error})")
    finally:
        if rules is not None:
            rules.close()
    if "seccomp" in layers:
        try:
            restrict_system_calls()
            active.append("seccomp")
        except OSError as error:
            missing.append(f"seccomp ({error})")
    if any(one.startswith(tuple(orders["required"])) for one in missing):
        raise ConfigurationError(
            f"workers cannot be confined as required, so no SQL is run: {', '.join(missing)}. "
            "Use a system that has it, or set worker_sandbox to auto"
        )
    return EnteredSandbox(SandboxReport(active, missing), outside)


def _become(user: WorkerUser) -> str:
    """Another user, in the new root, which only root can leave again. Half of it is not enough."""
    try:
        os.chdir("/")
        os.setgroups([])
        os.setresgid(user.gid, user.gid, user.gid)
        os.setresuid(user.uid, user.uid, user.uid)
    except OSError as error:
        raise ConfigurationError(
            f"workers cannot become the user {user.uid}: {error.strerror}. Allow it (CAP_SETUID and CAP_SETGID), or "
            f"set worker_user to {SAME!r}"
        ) from None
    return f"user {user.uid}"


def _leave_the_service(folder: str) -> None:
    """Its working directory, and its log, which a worker could forge lines in."""
    os.chdir(folder)
    nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(nowhere, 2)
    os.close(nowhere)


def _touch_what_is_needed_later() -> None:
    """What reads files only once: the time zone, the seed of SQLite's random numbers, our schema, who we are."""
    REAL.process()
    deque(migration_scripts("onceward.stores", "sqlite"), 0)
    with suppress(sqlite3.Error):
        connection = sqlite3.connect(":memory:")
        connection.execute("SELECT random(), datetime('now', 'localtime')").fetchone()
        connection.close()
