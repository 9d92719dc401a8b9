"""
An agent, a proxy and a server, one of them killed with SIGKILL: how often is somebody charged, and what does it read?

    server before    the server, called, before the effect          server effect   after it, before its answer
    proxy claim      the proxy, before it claims                     proxy settle    the answer is there, and not stored
    proxy settled    it is stored, and the client has not got it     proxy noted     it got it, and that is not noted
    client tool      the agent, while the tool runs                  client answer   with the answer, before its save
    client saved     after its save

`make test` has a dose; `CRASHES=all` all of it, on PostgreSQL, too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from onceward.cli import main
from servers import postgres

pytest.importorskip("mcp", reason="in make test-agents")

HERE = Path(__file__).resolve().parent
PATIENCE = 240
ALL = os.environ.get("CRASHES") == "all"

FAILPOINTS = {
    "proxy claim": ("claim.before", "2"),
    "proxy settle": ("settle.before", "2"),
    "proxy settled": ("settle.after", "2"),
    "proxy noted": ("claim.before", "3"),
}
"""Of each, the failpoint, and how many hits of it pass by: `notify` and its note have each claimed and settled."""
POINTS = (
    "server before", "server effect", "proxy claim", "proxy settle", "proxy settled", "proxy noted", "client tool",
    "client answer", "client saved",
)  # fmt: skip


class Case(NamedTuple):
    """One way to be killed."""

    point: str
    gated: bool = True
    delivered: str = "written"
    kind: str = "blind"


CASES = [
    *(Case(point) for point in POINTS),
    *(Case(point, gated=False) for point in POINTS if not point.startswith("proxy")),
    Case("client answer", delivered="followed"),
    Case("proxy settle", kind="repeatable"),
    Case("server effect", kind="repeatable"),
]
DOSE = [Case("proxy settle"), Case("client tool"), Case("client tool", gated=False)]
STORES = ("sqlite", "postgres") if ALL and postgres.wanted() else ("sqlite",)


def expected(case: Case) -> dict[str, int]:
    """The effects that a case comes to."""
    charged = 1
    if not case.gated:
        charged = 1 if case.point in ("server before", "client saved") else 2
    elif case.kind == "repeatable":
        charged = 2 if case.point == "proxy settle" else 1  # Where the model was told of the failure, it went on.
    elif case.point == "server before":
        charged = 0
    elif case.point == "client answer" and case.delivered == "written":
        charged = 2  # The client had the answer and lost it: only --delivered followed, or a key, can know that.
    return {"notify": 1} | ({"charge": charged} if charged else {})


@pytest.mark.slow
@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("case", CASES if ALL else DOSE, ids=lambda case: " ".join(map(str, case)))
@pytest.mark.dose(1)
def test_a_kill_anywhere_charges_nobody_twice(case: Case, kind: str, tmp_path: Path) -> None:
    """
    The effects are those of the table; what is in doubt is told to the model and not run; what is known is replayed.
    """
    store = f"sqlite:///{tmp_path}/agent.db" if kind == "sqlite" else postgres.running().url()
    assert main(["store", "init", "--store", store]) == 0

    runs = _until_finished(case, tmp_path, store)

    assert dict(Counter((tmp_path / "effects").read_text().split())) == expected(case)
    assert (tmp_path / "killed").exists()
    assert runs <= 3
    read = [json.loads(one) for one in (tmp_path / "read.jsonl").read_text().splitlines()]
    told = " ".join(text for tool, text, _ in read if tool == "charge")
    if case.gated and case.kind == "blind" and case.point in ("server before", "server effect", "proxy settle"):
        assert "may" in told and "have happened" in told and "again" not in told
    if case.gated and case.point in ("proxy settled", "client tool"):
        assert "dev.onceward/replayed" in read[-1][2]


def _until_finished(case: Case, folder: Path, store: str) -> int:
    """Start the agent, and start it again as often as it does not come to its end; how often that was."""
    (folder / "tools.toml").write_text(f'[tools.charge]\nkind = "{case.kind}"\n')
    shop = [sys.executable, str(HERE / "shop_server.py")]
    proxy = [
        sys.executable, str(HERE / "proxy_process.py"), "--store", store, "--run", folder.name, "--scope", "test:shop",
        "--tools", str(folder / "tools.toml"), "--delivered", case.delivered, "--", *shop,
    ]  # fmt: skip
    failpoint, skip = FAILPOINTS.get(case.point, ("", "0"))
    environment = {
        **os.environ, "SHOP_FOLDER": str(folder), "SHOP_POINT": case.point, "PROXY_FAILPOINT": failpoint,
        "PROXY_SKIP": skip, "PYTHONPATH": os.pathsep.join(sys.path),
    }  # fmt: skip
    for number in range(1, 6):
        ran = subprocess.run(
            [sys.executable, str(HERE / "shop_agent.py"), *(proxy if case.gated else shop)],
            env=environment, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        if (folder / "finished").exists():
            return number
    raise AssertionError(f"{case} did not finish (exit code {ran.returncode}):\n{ran.stderr[-4000:]}")
