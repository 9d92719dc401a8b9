"""
Which store a command works on: `--store URL`, or the environment variable ONCEWARD_STORE.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from onceward._core.errors import ConfigurationError
from onceward._core.store_protocols import Store
from onceward.cli.command_table import Argument
from onceward.stores import check_url, open_store
from onceward.stores._store_kinds import kind_of
from onceward.stores._upkeep import Upkeep

if TYPE_CHECKING:  # Not imported before they are needed: `--help` does not wait for them.
    from onceward.gate.seal_keys import Sealed
    from onceward.service.seal import TenantSeal

VARIABLE = "ONCEWARD_STORE"
SEAL_VARIABLE = "ONCEWARD_SEAL_KEYS"

STORE = Argument("--store", "the store, such as sqlite:///agent.db", metavar="URL", default_text=f"${VARIABLE}")

SEAL_KEYS = Argument(
    "--seal-keys", "the file with the keys of sealed values", metavar="FILE", default_text=f"${SEAL_VARIABLE}, if set"
)


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
            "this database has no tables of Onceward. If it is the right one, `onceward store init` with the same "
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
    url = existing_store_url(args)
    with ExitStack() as stack:
        store = open_store(url)
        stack.callback(store.close)
        seal = seal_of(args, url, stack)
        yield store if seal is None else _sealed(store, seal)


def _sealed(store: Store, seal: Sealed | TenantSeal) -> Store:
    from onceward._core.sealing import Sealer
    from onceward.gate.sealed_store import SealedStore

    return SealedStore(store, Sealer(seal))


def seal_of(args: argparse.Namespace, url: str, stack: ExitStack) -> Sealed | TenantSeal | None:
    """The keys that were named, and those of tenants under them if the store has any; None if none were named."""
    from onceward.gate.seal_keys import Sealed
    from onceward.service.seal import open_tenant_seal

    path = getattr(args, "seal_keys", None) or os.environ.get(SEAL_VARIABLE, "")
    if not path:
        return None
    master = Sealed.from_file(path)
    try:
        seal = open_tenant_seal(url, master, create=False)
    except ConfigurationError:
        return master  # No service has sealed anything here.
    stack.callback(seal.close)
    return seal


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
