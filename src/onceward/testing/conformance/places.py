"""
Where a test's store comes from, and how it is opened: by a URL, or by somebody's function.
"""

from __future__ import annotations

import importlib
import types
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import pytest

from onceward.environment import REAL
from onceward.stores import open_async_store, open_store
from onceward.testing.clock import StillEnvironment

Colour: TypeAlias = Literal["blocking", "awaiting"]
Factory: TypeAlias = Callable[[Colour, StillEnvironment], Any]
Source: TypeAlias = str | Factory

COLOURS: tuple[Colour, ...] = ("blocking", "awaiting")

_IN_FULL = {"memory://": "memory://{fresh}", "sqlite://": "sqlite:///{tmp}/store.db"}
"""What the shortest URLs stand for: a new store for every test, which a second handle can be opened on."""


class Place(NamedTuple):
    """One store, and everything needed to open a handle on it."""

    source: Source
    """A URL with its placeholders filled in, or a function."""
    colour: Colour
    environment: StillEnvironment

    def open(self, environment: StillEnvironment | None = None) -> Any:
        """A handle on the store, as its authors made it. For the awaiting colour call this inside the event loop."""
        environment = environment or self.environment
        if not isinstance(self.source, str):
            store = self.source(self.colour, environment)
            if store is None:
                pytest.skip(f"{name_of(self.source)} is not offered in the {self.colour} colour")
            return store
        opener: Callable[..., Any] = open_store if self.colour == "blocking" else open_async_store
        return opener(self.source, environment=environment)


def new_place(source: Source, colour: Colour, folder: Path) -> Place:
    """A place where nothing stands yet."""
    if isinstance(source, str):
        source = _IN_FULL.get(source, source)
        source = source.replace("{tmp}", folder.as_posix()).replace("{fresh}", REAL.random(8).hex())
    return Place(source, colour, StillEnvironment(seed="store"))


def sources_of(config: pytest.Config, module: types.ModuleType | None) -> list[Source]:
    """The stores to judge: a module's own `STORES`, or what the command line says."""
    given: list[Source] = list(getattr(module, "STORES", ()))
    if not given:
        given += [url for urls in config.getoption("--store", []) for url in urls.split(",") if url]
        given += [_imported(name) for name in config.getoption("--store-factory", [])]
    if not given:
        raise pytest.UsageError(
            "say which store to judge: --store sqlite://, --store-factory module:function, or STORES in the module "
            "that imports the suite"
        )
    return given


def name_of(source: Source) -> str:
    """What a source is called in the names of tests."""
    return source if isinstance(source, str) else getattr(source, "__name__", type(source).__name__)


def _imported(name: str) -> Factory:
    module, colon, function = name.partition(":")
    if not colon:
        raise pytest.UsageError(f"--store-factory takes module:function, not {name!r}")
    factory: Factory = getattr(importlib.import_module(module), function)
    return factory


class Awaiting:
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
