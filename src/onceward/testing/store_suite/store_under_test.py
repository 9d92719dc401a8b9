"""
Where a test's store comes from, and how it is opened: by a URL, by a `Candidate`, or by somebody's function.
"""

from __future__ import annotations

import importlib
import operator
import types
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import pytest

from onceward._core.errors import ConfigurationError
from onceward.runtime.environment import REAL, Environment
from onceward.stores import open_async_store, open_store
from onceward.stores._store_kinds import kind_of
from onceward.testing.clock import StillEnvironment
from onceward.testing.store_suite.candidates import Candidate, NetworkLine, tcp_line

Colour: TypeAlias = Literal["blocking", "awaiting"]
Factory: TypeAlias = Callable[[Colour, StillEnvironment], Any]
StoreSource: TypeAlias = str | Candidate | Factory

COLOURS: tuple[Colour, ...] = ("blocking", "awaiting")

_IN_FULL = {"memory://": "memory://{fresh}", "sqlite://": "sqlite:///{tmp}/store.db"}
"""What the shortest URLs stand for: a new store for every test, which a second handle can be opened on."""

ONE_HANDLE = (
    "{} opens another, empty store at every call, so neither a second handle nor another process can be tried, and a "
    "store that lets two callers win would pass. Give the suite a Candidate(kind=..., url=...), or a URL. If other "
    "processes cannot open the store, say so: StoreKind(processes=False)"
)


class StoreUnderTest(NamedTuple):
    """One store, and everything needed to open a handle on it."""

    source: StoreSource
    """A URL or a `Candidate` with its placeholders filled in, or a function."""
    colour: Colour
    environment: StillEnvironment

    @property
    def name(self) -> str:
        """What the store is called."""
        return name_of(self.source)

    @property
    def candidate(self) -> Candidate:
        """What is known of the store; a function opens a store that nobody can open again."""
        match self.source:
            case Candidate():
                return self.source
            case str():
                return Candidate(kind=kind_of(self.source), url=self.source)
        pytest.fail(ONE_HANDLE.format(self.name))

    @property
    def url(self) -> str:
        """What is opened."""
        return self.candidate.url

    def open(self, environment: Environment | None = None) -> Any:
        """A handle on the store, as its authors made it. For the awaiting colour call this inside the event loop."""
        environment = environment or self.environment
        store: Any
        if isinstance(self.source, str):
            opener: Callable[..., Any] = open_store if self.colour == "blocking" else open_async_store
            return opener(self.source, environment=environment)
        if isinstance(self.source, Candidate):
            opens = self._opens()
            store = None if opens is None else opens(self.source.url, environment=environment)
        else:
            store = self.source(self.colour, environment)  # type: ignore[arg-type]
        if store is None:
            pytest.skip(f"{self.name} has no {self.colour} store")
        return store

    def opener(self) -> str:
        """What opens the store in another process: `module:name`, or nothing for whatever the URL says."""
        if isinstance(self.source, str):
            return ""
        opens: Any = self._opens()
        if opens is None:
            pytest.skip(f"{self.name} has no {self.colour} store")
        owner = getattr(opens, "__self__", None)
        if isinstance(owner, type):  # A class method, which may be inherited: the class that it is called on is meant.
            name = f"{owner.__module__}:{owner.__qualname__}.{opens.__name__}"
        else:
            name = f"{opens.__module__}:{opens.__qualname__}"
        if "<" in name or name.startswith("__main__:"):
            pytest.fail(f"{name} cannot be imported by another process: open the store with a function of a module")
        return name

    def _opens(self) -> Any:
        kind = self.candidate.kind
        return kind.open if self.colour == "blocking" else kind.open_async

    @contextmanager
    def line(self) -> Iterator[NetworkLine]:
        """The line to the store, to be cut; a test is left out where there is none, and fails where nobody says."""
        candidate = self.candidate
        if candidate.line is not None:
            with candidate.line(candidate.url) as line:
                yield line
        elif candidate.no_line:
            pytest.skip(candidate.no_line)
        elif candidate.kind.local:
            pytest.skip("the store is on this machine: there is no connection to cut")
        elif urlsplit(candidate.url).port is None:
            pytest.fail(
                f"{self.name} has no host and port to put a proxy in front of: say how to cut its line "
                "(Candidate(line=...)), or why that is impossible (no_line=...)"
            )
        else:
            with tcp_line(candidate.url) as line:
                yield line

    def over(self, line: NetworkLine) -> StoreUnderTest:
        """The same store, reached over a line."""
        match self.source:
            case Candidate():
                return self._replace(source=replace(self.source, url=line.url))
            case _:
                return self._replace(source=line.url)


def new_store_under_test(source: StoreSource, colour: Colour, folder: Path) -> StoreUnderTest:
    """A place where nothing stands yet."""
    match source:
        case str():
            source = _filled(_IN_FULL.get(source, source), folder)
        case Candidate():
            source = replace(source, url=_filled(source.url, folder))
    return StoreUnderTest(source, colour, StillEnvironment(seed="store"))


def _filled(url: str, folder: Path) -> str:
    return url.replace("{tmp}", folder.as_posix()).replace("{fresh}", REAL.random(8).hex())


def chosen_sources(config: pytest.Config, module: types.ModuleType | None) -> list[StoreSource]:
    """The stores to judge: a module's own `STORES`, or what the command line says."""
    given: list[StoreSource] = list(getattr(module, "STORES", ()))
    if not given:
        given += [url for urls in config.getoption("--store", []) for url in urls.split(",") if url]
        given += [import_object(name) for name in config.getoption("--store-factory", [])]
    if not given:
        raise pytest.UsageError(
            "say which store to judge: --store sqlite://, --store-factory module:name, or STORES in the module that "
            "imports the suite"
        )
    for source in given:
        if isinstance(source, str):
            _check(source)
    return given


def _check(url: str) -> None:
    try:
        kind_of(url)
    except ConfigurationError as error:
        raise pytest.UsageError(str(error)) from None


def name_of(source: StoreSource) -> str:
    """What a source is called in the names of tests."""
    match source:
        case str():
            return source
        case Candidate():
            return source.url
    return getattr(source, "__name__", type(source).__name__)


def import_object(name: str) -> Any:
    """What `module:name` means; the name may have dots."""
    module, colon, path = name.partition(":")
    if not colon:
        raise pytest.UsageError(f"--store-factory takes module:name, not {name!r}")
    return operator.attrgetter(path)(importlib.import_module(module))


class LazyAsyncStore:
    """
    A handle on an awaiting store, with methods that may be called before the loop runs.

    An awaiting store may need the running loop as soon as it is called (to make a future). Here nothing is called
    before it is awaited.
    """

    def __init__(self, store: Any) -> None:
        self.handle = store

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self.handle, name)

        async def call(*arguments: Any) -> Any:
            return await method(*arguments)

        return call
