"""
`onceward store reseal`: bring what a store holds under the key that seals now.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from onceward.cli import exit_codes
from onceward.cli.command_table import Command
from onceward.cli.output import print_json, print_note, print_text
from onceward.cli.progress import progress_of, share_of_ids
from onceward.cli.store_argument import SEAL_KEYS, STORE, existing_store_url, seal_of
from onceward.cli.tenant_databases import FOLDER, SQL, databases_folder, sql_urls
from onceward.cli.text_tables import format_facts
from onceward.gate.resealing import ResealProgress, reseal_store
from onceward.stores import open_store, tables_url


def _reseal(args: argparse.Namespace) -> int:
    """Seal what is not sealed under the first key."""
    from onceward._core.sealing import Sealer
    from onceward.gate.seal_keys import Sealed

    url = existing_store_url(args)
    progress = ResealProgress()
    with ExitStack() as stack:
        seal = seal_of(args, url, stack)
        if seal is None:
            raise exit_codes.UsageError(
                "no keys were named: --seal-keys FILE has the keys, one on each line, the one that seals first"
            )
        master = seal if isinstance(seal, Sealed) else seal.master
        key_id_for = (lambda scope: master.key_ids[0]) if isinstance(seal, Sealed) else seal.key_id_for
        stores = list(_stores(args, url))
        line = stack.enter_context(progress_of("sealing"))
        for number, one in enumerate(stores):
            with closing(open_store(one)) as store:
                for _ in reseal_store(store, Sealer(seal), key_id_for, progress):
                    words = f"looked at {progress.looked_at:,} records, sealed {progress.resealed:,}"
                    line((number + share_of_ids(progress.after)) / len(stores), words)
    _show(progress, args)
    return exit_codes.NO if progress.held or progress.unreadable else exit_codes.FINE


def _stores(args: argparse.Namespace, url: str) -> Iterator[str]:
    """The store, and the files of a service beside it that hold records, too: the ledger's, and tenants' databases."""
    yield url
    yield from (one for one in sql_urls(args) if one != url)
    beside = tables_url(url) or ""
    folder = databases_folder(args)
    files = [] if folder is None else sorted(folder.glob("*/*.db"))
    if urlsplit(beside).scheme.lower() == "sqlite":
        from onceward.stores._sqlite_file import parse
        from onceward.stores.tables.location import file_beside

        files.insert(0, file_beside(parse(beside)[0], "ledger"))
    yield from (f"sqlite:///{quote(str(Path(file).resolve()))}" for file in files if file.exists())


def _show(progress: ResealProgress, args: argparse.Namespace) -> None:
    document: dict[str, Any] = {
        "lookedAt": progress.looked_at,
        "resealed": progress.resealed,
        "held": progress.held,
        "unreadable": progress.unreadable,
        "unreadableDigests": progress.digests,
    }
    if args.json:
        print_json(document)
        return
    digests = ", ".join(progress.digests)
    print_text(
        format_facts(
            [
                ("looked at", f"{progress.looked_at:,}"),
                ("sealed", f"{progress.resealed:,}"),
                ("in use", f"{progress.held:,}" if progress.held else None),
                ("not readable", f"{progress.unreadable:,}: {digests}" if progress.unreadable else None),
            ]
        )
    )
    if progress.held:
        print_note("records of running operations were left alone: run this again when they have ended")
    if progress.unreadable:
        print_note("values that cannot be opened were left alone: `onceward records show DIGEST` says why")


RESEAL_COMMANDS = (
    Command(
        name="store reseal",
        summary="seal every stored value with the first of these keys",
        run=_reseal,
        arguments=(
            *(SEAL_KEYS, STORE, replace(FOLDER, help="the service's folder, whose databases are sealed as well")),
            replace(SQL, help="the PostgreSQL database with the service's databases, whose records are sealed as well"),
        ),
        examples=("onceward store reseal --seal-keys seal-keys.txt",),
        exit_codes=exit_codes.TO_FIND,
        no="some values were left alone: they are held, or cannot be opened",
        more=(
            "For values sealed with an older key, and those stored before sealing was switched on. Running gates are "
            "not\n"
            "disturbed; if it is killed, run it again. Exit code 1: some are in use or cannot be opened, and were "
            "left alone."
        ),
    ),
)
