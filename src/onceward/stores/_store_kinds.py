"""
`StoreKind`: how the URLs of one scheme become stores. The table of our own kinds, and those of other packages.

Our own are in a table here. Those of other packages are entry points of the group `onceward.stores`, each of which
names a `StoreKind`; they are looked up, and loaded, when somebody asks for their scheme, and never in place of ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit

from onceward._core.errors import ConfigurationError, OncewardError
from onceward._core.store_protocols import AsyncStore, Store
from onceward.runtime.environment import Environment
from onceward.stores._upkeep import Upkeep

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "onceward.stores"
"""Of the entry points."""


class StoreOpener(Protocol):
    """Opens the store that a URL names."""

    def __call__(self, url: str, *, environment: Environment) -> Store:
        """Open it. Take the time from `environment` if the store is on this machine; otherwise leave it alone."""


class AsyncStoreOpener(Protocol):
    """Opens a store from a URL, for awaiting callers."""

    def __call__(self, url: str, *, environment: Environment) -> AsyncStore:
        """Open it; there may be no event loop yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreKind:
    """How URLs of one scheme become stores: what an entry point of the group `onceward.stores` names."""

    open: StoreOpener | None = None
    """For blocking callers; None: not offered."""
    open_async: AsyncStoreOpener | None = None
    """For awaiting callers; None: not offered."""
    local: bool = False
    """
    Whether the records are on this machine (a file, memory), so that its clock is the store's. False: a server keeps
    them, and no clock of a caller may play a role.
    """
    processes: bool = True
    """Whether other processes can open the same store by the same URL."""
    tables: Callable[[str], str] | None = None
    """
    From a URL of this kind to that of a database (sqlite:// or postgresql://) where tables that are no records may be
    kept: tokens, tenants, ledger, journal, webhooks, messages. None: nowhere, so there are none of these.
    """
    upkeep: Callable[[], Upkeep] | None = None
    """For `onceward store`: gives the module, or object, that makes such a store ready. None: it needs nothing."""

    def __post_init__(self) -> None:
        """Refuse a kind that can open nothing."""
        if self.open is None and self.open_async is None:
            raise ConfigurationError("a StoreKind needs open, open_async or both")
        for name in ("open", "open_async", "tables", "upkeep"):
            given = getattr(self, name)
            if given is not None and not callable(given):
                raise ConfigurationError(f"StoreKind.{name} is a function, not {type(given).__name__}")


class _Ours(NamedTuple):
    """One of our own."""

    value: str
    """As an entry point would have it."""
    driver: str | None = None
    """A package that must be there."""
    extra: str = ""
    """Of ours, which brings that package."""


_POSTGRES = _Ours("onceward.stores.postgres:KIND", "psycopg", "postgres")
_REDIS = _Ours("onceward.stores.redis:KIND", "redis", "redis")
_OURS = {
    "memory": _Ours("onceward.stores.memory:KIND"),
    "sqlite": _Ours("onceward.stores.sqlite:KIND"),
    "postgresql": _POSTGRES,
    "postgres": _POSTGRES,
    **dict.fromkeys(("redis", "rediss", "redis+cluster", "rediss+cluster"), _REDIS),
    **dict.fromkeys(("redis+sentinel", "rediss+sentinel"), _REDIS),
}

_loaded: dict[str, StoreKind] = {}
"""Of other packages: scheme -> kind."""


def kind_of(url: str) -> StoreKind:
    """The kind of store that a URL names; refused if there is none, or what it needs is missing."""
    scheme = scheme_of(url)
    ours = _OURS.get(scheme)
    if ours is not None:
        if ours.driver is not None and find_spec(ours.driver) is None:
            raise ConfigurationError(
                f"this store needs the package {ours.driver!r}, which is missing: pip install 'onceward[{ours.extra}]'"
            )
        module, _, name = ours.value.partition(":")
        kind: StoreKind = vars(import_module(module))[name]
        return kind
    if scheme not in _loaded:
        _loaded[scheme] = _load(scheme)
    return _loaded[scheme]


def scheme_of(url: str) -> str:
    """The scheme of a store's URL, in small letters."""
    if not isinstance(url, str) or "://" not in url:
        # What stands after the first "@" or ":" may be a password.
        shown = re.split("[:@]", url)[0] if isinstance(url, str) else type(url).__name__
        raise ConfigurationError(
            f"a store is named by a URL such as sqlite:///agent.db or memory://, not by {shown[:40]!r}"
        )
    try:
        scheme = urlsplit(url).scheme.lower()
    except ValueError:  # Its words may hold the user and the password.
        raise ConfigurationError(
            "the store's URL cannot be read; special characters in a user or a password are percent-encoded (%40 for @)"
        ) from None
    if not scheme:
        before = re.split("[:@]", url)[0]
        raise ConfigurationError(
            f"a URL's scheme is a letter, then letters, digits, '+', '-' and '.'; {before[:40]!r} is none"
        )
    return scheme


S = TypeVar("S")


def opened(url: str, opens: Callable[..., S], environment: Environment) -> S:
    """Open a store. An error that the opener should not have raised is reported as its package's mistake."""
    try:
        store = opens(url, environment=environment)
    except OncewardError:
        raise
    except Exception as error:  # Without its words, which may hold the URL and its password.
        raise ConfigurationError(
            f"{scheme_of(url)}:// cannot be opened: its opener raised {type(error).__name__}, where it must raise "
            "StoreUnavailable or ConfigurationError"
        ) from error
    if store is None:
        raise ConfigurationError(f"{scheme_of(url)}:// cannot be opened: its opener returned None")
    return store


def _load(scheme: str) -> StoreKind:
    """The kind that another package brings."""
    from importlib.metadata import entry_points  # Here: it takes a while, and most stores are ours.

    installed = [one for one in entry_points(group=GROUP) if one.name.lower() not in _OURS]
    found = [one for one in installed if one.name.lower() == scheme]
    if not found:
        raise _unknown(scheme, installed)
    if len(found) > 1:
        packages = " and ".join(sorted(_package(one) for one in found))
        raise ConfigurationError(f"{scheme}:// is claimed by {packages}; only one of them can be installed")
    [point] = found
    brought = f"{scheme}:// comes from {_package(point)}, and its entry point {point.value!r}"
    try:
        kind = point.load()
    except (Exception, SystemExit) as error:  # Whatever that package does while it is imported.
        raise ConfigurationError(f"{brought} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(kind, StoreKind):
        raise ConfigurationError(f"{brought} names a {type(kind).__name__}, not an onceward.stores.StoreKind")
    return kind


def _unknown(scheme: str, installed: list[EntryPoint]) -> ConfigurationError:
    from difflib import get_close_matches

    theirs = {one.name.lower(): _package(one) for one in installed}
    close = get_close_matches(scheme, [*_OURS, *theirs], n=1)
    if close:
        return ConfigurationError(f"no store is called {scheme}://; did you mean {close[0]}://?")
    known = [f"{name}://" for name in _OURS] + [f"{name}:// ({package})" for name, package in sorted(theirs.items())]
    return ConfigurationError(
        f"no store is called {scheme}://; known: {', '.join(known)}. A package that brings another one (as an entry "
        f"point of {GROUP!r}) must be installed beside onceward"
    )


def _package(point: EntryPoint) -> str:
    return "a package without a name" if point.dist is None else f"the package {point.dist.name} {point.dist.version}"
