"""
MCP, killed for real: an agent and its server in two processes, over both transports.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from crash_kit import POINTS
from crash_runs import HERE, SCENARIOS, Case, count_effects, crash
from mcp import Client, StdioServerParameters

from onceward.agents.mcp import KeyedClient
from onceward.agents.mcp_fields import CODE

ALL = os.environ.get("CRASHES") == "all"

CASES = [
    *((Case("mcp_server", point), "sdk", "stdio") for point in POINTS),
    *((Case("mcp_server", point), "sdk", "http") for point in POINTS),
    *((Case("mcp_server", point, gated=False), "sdk", "stdio") for point in POINTS),
    (Case("mcp_server", "before", kind="keyed"), "sdk", "stdio"),
    *((Case("mcp_server", point), "fastmcp", "stdio") for point in POINTS),
    *((Case("mcp_server", point, gated=False), "fastmcp", "http") for point in POINTS),
]
"""Every case, with the server's framework and the transport."""

DOSE = [
    (Case("mcp_server", "effect"), "sdk", "http"),
    (Case("mcp_server", "answer"), "sdk", "stdio"),
    (Case("mcp_server", "effect", gated=False), "sdk", "stdio"),
]


def expected(case: Case) -> dict[str, int]:
    """The effects of one wanted charge and one wanted message."""
    if not case.gated:
        twice = case.point in ("effect", "answer")
        return {"charge": 2 if twice else 1, "notify": 1 if case.point == "saved" else 2}
    charged = 0 if case.point == "before" and case.kind == "blind" else 1
    return {"charge": charged, "notify": 1}


def counted(folder: Path) -> dict[str, int]:
    """The effects at the external counter."""
    effects = count_effects(folder)
    return {name: effects[name] for name in ("charge", "notify")}


@pytest.mark.slow
@pytest.mark.parametrize(("case", "framework", "transport"), CASES if ALL else DOSE)
@pytest.mark.dose(1)
def test_an_agent_and_its_server_are_killed_and_started_again(
    case: Case, framework: str, transport: str, tmp_path: Path
) -> None:
    """One effect with the gate; two without it; and in doubt the model is told so."""
    if framework == "fastmcp":
        pytest.importorskip("fastmcp", reason="in make test-agents")

    report = crash(case, tmp_path, f"sqlite:///{tmp_path}/agent.db", MCP_FRAMEWORK=framework, MCP_TRANSPORT=transport)

    assert counted(tmp_path) == expected(case)
    doubtful = case.gated and case.kind == "blind" and case.point in ("before", "effect")
    assert report.told_doubt is doubtful
    print(case, framework, transport, counted(tmp_path), f"{report.seconds:.2f} s")


@pytest.mark.slow
@pytest.mark.parametrize("gated", [True, False])
def test_a_client_outlives_its_server_and_asks_the_next_one(gated: bool, tmp_path: Path) -> None:
    """The server is killed after the effect; the client connects to another one, and sends the same key."""
    environment = {
        **os.environ,
        "AGENT_FOLDER": str(tmp_path),
        "AGENT_STORE": f"sqlite:///{tmp_path}/agent.db",
        "AGENT_POINT": "effect",
        "AGENT_KIND": "blind",
        "AGENT_COLOUR": "async",
        "AGENT_GATE": "on" if gated else "off",
        "MCP_FRAMEWORK": "sdk",
        "MCP_TRANSPORT": "stdio",
        "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent), *sys.path]),
    }
    server = StdioServerParameters(
        command=sys.executable, args=[str(SCENARIOS / "mcp_server.py"), "server"], env=environment
    )

    async def work() -> Any:
        async with KeyedClient(lambda: Client(server), run="order-42", server_honours_keys=True) as keyed:
            return await keyed.call_tool("charge", {"order": "42"})

    answer = asyncio.run(work())

    assert count_effects(tmp_path)["charge"] == (1 if gated else 2)
    assert (answer.meta or {}).get(CODE) == ("in_doubt" if gated else None)
