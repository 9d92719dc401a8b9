"""
Asks the questions and writes the page: `make compare`, or `python -m compare --help`.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from bench import peers as bench_peers

from compare import page, results
from compare.peers import PEERS
from compare.questions import questions
from compare.servers import Servers
from compare.telling import progress


def main() -> int:
    """Ask, keep, write; 1 if an answer of ours is wrong."""
    known, names = questions(), {peer.name for peer in PEERS}
    parser = argparse.ArgumentParser(prog="compare", description="Ask Onceward and its peers the same questions.")
    parser.add_argument("only", nargs="*", metavar="NAME", help="questions and packages to ask; all if none is named")
    parser.add_argument("--no-save", action="store_true", help="print only; results.json and the page stay")
    parser.add_argument("--list", action="store_true", help="print the questions and the packages")
    asked = parser.parse_args()
    if asked.list:
        print("\n".join([*(f"{one.name:16} {one.title}" for one in known.values()), "", *sorted(names)]))
        return 0
    unknown = [name for name in asked.only if name not in known and name not in names]
    if unknown:
        parser.error(f"neither a question nor a package: {', '.join(unknown)}. --list prints them.")
    chosen = [known[name] for name in asked.only if name in known] or list(known.values())
    wanted = {name for name in asked.only if name in names}
    missing = _prepared(wanted)
    folder = Path(tempfile.mkdtemp(prefix="onceward-compare-"))
    servers = Servers(folder / "servers")
    try:
        found = results.ask(chosen, wanted, servers, folder, missing)
    finally:
        servers.close()
        shutil.rmtree(folder, ignore_errors=True)
    if not asked.no_save:
        results.save(found)
        page.write()
    wrong = results.wrong(found, known)
    print("\n".join(f"WRONG, and it is ours: {line}" for line in wrong) or "every answer of ours is right")
    return 1 if wrong else 0


def _prepared(wanted: set[str]) -> dict[str, str]:
    """Install what the peers need; what could not be installed."""
    needs = {
        name: version for peer in PEERS if not wanted or peer.name in wanted for name, version in peer.needs.items()
    }
    missing = bench_peers.prepare(needs) if needs else {}
    for name, why in missing.items():
        progress(f"{name} {why}")
    return missing


if __name__ == "__main__":
    sys.exit(main())
