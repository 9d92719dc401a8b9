"""
Which store a command works on: `--store URL`, or the environment variable ONCEWARD_STORE.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from onceward._core.errors import ConfigurationError
from onceward._core.store_protocols import Store
from onceward.cli.command_table import Argument
from onceward.stores import check_url, open_store
from onceward.stores._store_kinds import kind_of
from onceward.stores._upkeep import Upkeep

VARIABLE = "ONCEWARD_STORE"

STORE = Argument("--store", "the store, such as sqlite:///agent.db", metavar="URL", default_text=f"${VARIABLE}")


def store_url(args: argparse.Namespace) -> str:
    """The URL of the store that was named."""
    url: str = args.store or os.environ.get(VARIABLE, "")
    if not url:
        raise ConfigurationError(
            f"no store was named. Add --store URL, or set the environment variable {VARIABLE}; a URL is, for example, "
            "sqlite:///agent.db"
        )
    check_url(url)
    return url


def existing_store_url(args: argparse.Namespace) -> str:
    """The URL of the store that was named, which must be there: only `store init` makes one."""
    return check_is_there(store_url(args))


def check_is_there(url: str) -> str:
    """The URL, if there is a store."""
    upkeep = upkeep_of(url)
    if urlsplit(url).scheme.lower() == "sqlite":
        _check_is_there(url)
    elif upkeep is not None and not upkeep.is_there(url):
        raise ConfigurationError(
            "this database has none of Onceward's tables. If it is the right one, `onceward store init` with the same "
            "URL makes them"
        )
    return url


def upkeep_of(url: str) -> Upkeep | None:
    """How a store is made ready and checked; None for one that needs nothing of that, such as a memory store."""
    find = kind_of(url).upkeep
    if find is not None:
        return find()
    open_store(url).close()  # It says what is wrong with the URL.
    return None


@contextmanager
def open_chosen_store(args: argparse.Namespace) -> Iterator[Store]:
    """The store that was named, open for the length of a `with` block."""
    store = open_store(existing_store_url(args))
    try:
        yield store
    finally:
        store.close()


def _check_is_there(url: str) -> None:
    """A mistyped path would otherwise become an empty store, in which nothing is ever in doubt."""
    from onceward.stores._sqlite_file import parse
    from onceward.stores.sqlite import schema_version

    path, _ = parse(url)
    try:
        is_there = path.exists()
    except OSError:
        return  # Opening it will say what is wrong.
    if not is_there:
        raise ConfigurationError(f"there is no file {path}; `onceward store init --store {url}` makes it")
    if schema_version(url) == 0:
        raise ConfigurationError(
            f"{path} is a database without Onceward's tables. If it is the right one, "
            f"`onceward store init --store {url}` adds them"
        )
