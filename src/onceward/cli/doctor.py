"""
`onceward doctor`: check a project against the production checklist, and describe its keys.

It reads. Only `doctor keys MODULE` imports what it is told to, in another process.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceward._core.errors import ConfigurationError
from onceward._core.operation import to_datetime
from onceward.cli import exit_codes
from onceward.cli.command_table import GROUPS, Argument, Command
from onceward.cli.output import print_json, print_note, print_text
from onceward.cli.progress import progress_of
from onceward.cli.store_argument import STORE, VARIABLE, existing_store_url
from onceward.cli.text_tables import escape_invisible
from onceward.runtime.environment import REAL

if TYPE_CHECKING:
    from onceward.doctor.code_facts import CodeFacts
    from onceward.doctor.examination import Evidence
    from onceward.doctor.key_sentences import KeySentence


def _doctor(args: argparse.Namespace) -> int:
    from onceward.doctor.examination import examine
    from onceward.doctor.report import as_document, as_lines, empty_boxes

    if args.html is not None:
        _check_writable(args.html)
    evidence = _gather(args)
    examined = examine(evidence)
    if args.html is not None:
        _write_page(args.html, evidence, examined)
    if args.json:
        print_json(as_document(examined, evidence.code.files + evidence.sql.files))
    else:
        print_text(as_lines(examined))
    return exit_codes.NO if empty_boxes(examined) else exit_codes.FINE


def _gather(args: argparse.Namespace) -> Evidence:
    """All evidence. The store first: if it is away, nobody has to wait for the files."""
    from onceward.doctor.code_reader import lint_settings
    from onceward.doctor.examination import BOXES, Evidence
    from onceward.doctor.journal_reader import read_journal
    from onceward.doctor.settings_reader import DoctorSettings, find_config, read_doctor_settings
    from onceward.doctor.sql_reader import read_sql
    from onceward.doctor.store_reader import read_store

    paths = args.path or [Path()]
    has_store = bool(args.store or os.environ.get(VARIABLE))
    url = existing_store_url(args) if has_store else ""
    store = read_store(url) if has_store else None
    journal = read_journal(url) if has_store else None
    config = args.config or find_config(paths[0])
    stated = read_doctor_settings(config, {one.id for one in BOXES}) if config is not None else DoctorSettings()
    settings = lint_settings(config, paths[0])
    code = _read_code(args)
    code.effects = [one for one in code.effects if one.called not in stated.inside]
    with progress_of("reading SQL") as progress:
        sql = read_sql(paths, settings, progress, tests=args.tests)
    if not code.files and not sql.files:
        raise exit_codes.UsageError(
            f"there are no Python or SQL files in {', '.join(map(str, paths))}. "
            "Go to the project, or name it with --path"
        )
    return Evidence(code, sql, stated.answers, store, journal, has_store)


def _read_code(args: argparse.Namespace) -> CodeFacts:
    from onceward.doctor.code_reader import lint_settings, read_code

    paths = args.path or [Path()]
    settings = lint_settings(args.config, paths[0])
    with progress_of("reading Python") as progress:
        return read_code(paths, settings, progress, tests=args.tests)


def _check_writable(file: Path) -> None:
    """Say so before the work, not after it."""
    if file.is_dir() or not file.absolute().parent.is_dir():
        raise exit_codes.UsageError(
            f"--html {file}: its folder does not exist, or it is a folder itself. Name a file in an existing folder"
        )


def _write_page(file: Path, evidence: Evidence, examined: list[Any]) -> None:
    from onceward.doctor.html_page import as_page
    from onceward.doctor.key_sentences import sentences_of_code

    sentences = sentences_of_code(evidence.code.operations, evidence.code.keys)
    read = f"{evidence.code.files:,} Python files, {evidence.sql.files:,} SQL files"
    read += f", and the store ({evidence.store.kind})" if evidence.store is not None else "; no store was named"
    today = to_datetime(REAL.wall_us()).date().isoformat()
    page = as_page(examined, sentences, project=Path.cwd().name, read=f"{read}. Made by onceward doctor on {today}")
    part = file.with_name(f"{file.name}.part")
    try:
        part.write_text(page, encoding="utf-8")
        part.replace(file)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise ConfigurationError(f"--html {file}: cannot be written: {error.strerror}. Name another file") from None
    print_note(f"onceward: the page is in {file}")


def _keys(args: argparse.Namespace) -> int:
    from onceward.doctor.key_sentences import sentence_of_operation, sentences_of_code
    from onceward.doctor.module_import import import_operations

    if args.modules:
        if args.path:
            raise exit_codes.UsageError("give either modules, which are imported, or --path, which is only read")
        found = import_operations(args.modules, args.seconds)
        sentences = [sentence_of_operation(one, where=one.place.path) for one in found]
        nothing = f"no function in {', '.join(args.modules)} is declared with gate.once"
    else:
        code = _read_code(args)
        if not code.files:
            raise exit_codes.UsageError("there are no Python files there. Go to the project, or name it with --path")
        sentences = sentences_of_code(code.operations, code.keys)
        for place in code.unread:
            print_note(f"onceward: {place} cannot be read, so its keys are not described")
        nothing = "no key is made there"
    _show_keys(args, sentences, nothing)
    return exit_codes.NO if not sentences or any("key" in one.unresolved for one in sentences) else exit_codes.FINE


def _show_keys(args: argparse.Namespace, sentences: list[KeySentence], nothing: str) -> None:
    if args.json:
        print_json(
            [
                {"name": one.name, "where": one.where, "sentence": one.sentence, "unresolved": list(one.unresolved)}
                for one in sentences
            ]
        )
    elif sentences:
        for one in sentences:
            print_text(escape_invisible(one.sentence))
    if not sentences:
        print_note(f"onceward: {nothing}")
    for one in sentences:
        if one.unresolved:
            advice = "" if args.modules else "; `onceward doctor keys MODULE` imports it and knows"
            print_note(f"onceward: {one.where}: the text does not show {', '.join(one.unresolved)}{advice}")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds <= 600:
        raise argparse.ArgumentTypeError(f"a number of seconds up to 600, not {text!r}")
    return seconds


_READING = (
    Argument(
        "--path",
        "a file or folder of the project; may be repeated (default: this folder)",
        action="append",
        type=Path,
        metavar="PATH",
    ),
    Argument("--config", "settings: a pyproject.toml (default: the nearest one)", type=Path, metavar="FILE"),
    Argument("--tests", "also look at tests", action="store_true"),
)

COMMANDS = (
    Command(
        name="doctor",
        summary=GROUPS["doctor"],
        run=_doctor,
        arguments=(
            *_READING,
            replace(STORE, help="also look at this store and its journal", default_text=f"${VARIABLE}, if it is set"),
            Argument(
                "--html", "also write the report to this file, as one HTML page to share", type=Path, metavar="FILE"
            ),
        ),
        examples=("onceward doctor  # exit 1", "onceward doctor --path shop.py --html report.html  # exit 1"),
        exit_codes=exit_codes.TO_FIND,
        no="a box is empty",
        more=(
            "Prints one line for each box: the evidence, or what to do. What cannot be seen from here "
            "counts as missing. Reads files, and the store if one is named; runs and imports nothing. State what no "
            "tool "
            "can see in pyproject.toml, under [tool.onceward.doctor.answers]: the id of the box, and a reason."
        ),
    ),
    Command(
        name="doctor keys",
        summary="describe the key of every operation in one sentence",
        run=_keys,
        arguments=(
            Argument(
                "modules",
                "import these modules, in another process, and describe what they declare",
                nargs="*",
                metavar="MODULE",
            ),
            *_READING,
            Argument("--seconds", "how long importing may take", type=_seconds, default=30.0, metavar="N"),
        ),
        examples=("onceward doctor keys --path shop.py  # exit 1",),
        exit_codes=(exit_codes.FINE, exit_codes.NO, exit_codes.USAGE),
        no="there is no key, or one that cannot be described",
        more=(
            "Without a module, the source is read and nothing is imported; what the source does not "
            "show is named. Importing a module runs it: if it hangs, exits or raises, the error says so."
        ),
    ),
)
