"""Alert rules and dashboard: read by real parsers, and no metric in them that is not in the code."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from onceward.gate import Event, EventType
from onceward.observe import CATALOGUE, Metrics

ROOT = Path(__file__).resolve().parents[2]
OPS = ROOT / "ops"
RULES = OPS / "prometheus-rules.yml"
DASHBOARD = OPS / "grafana-dashboard.json"
SERIES = {
    one.name + end: one
    for one in CATALOGUE
    for end in (("_bucket", "_sum", "_count") if one.kind == "histogram" else ("",))
}


def rules() -> list[dict[str, Any]]:
    return [one for group in yaml.safe_load(RULES.read_text())["groups"] for one in group["rules"]]


def expressions() -> list[str]:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [*(one["expr"] for one in rules()), *(target["expr"] for panel in panels for target in panel["targets"])]


@pytest.mark.fault("rules-name-what-is-not-there")
def test_every_metric_and_label_in_rules_and_dashboard_exists() -> None:
    """
    A metric that was renamed makes an alert that never rings, which nobody notices.
    """
    named = [(text, name) for text in expressions() for name in re.findall(r"\bonceward_\w+", text)]
    by = [
        (text, label.strip())
        for text in expressions()
        for group in re.findall(r"by \(([^)]*)\)", text)
        for label in group.split(",")
    ]
    known = {"job", "instance", "le", *(label for one in CATALOGUE for label in one.labels)}

    assert len(named) > 30
    assert [one for one in named if one[1] not in SERIES] == []
    assert [one for one in by if one[1] not in known] == []


def test_labels_that_are_chosen_belong_to_their_metric() -> None:
    """
    `{state="open"}` of a metric without a state chooses nothing.
    """
    chosen = [
        (name, label)
        for text in expressions()
        for name, labels in re.findall(r"\b(onceward_\w+)\{([^}]*)\}", text)
        for label in re.findall(r"(\w+)=", labels)
    ]

    assert [(name, label) for name, label in chosen if label not in ("job", *SERIES[name].labels)] == []


def test_every_alert_that_is_promised_is_there_and_says_what_to_do() -> None:
    """
    In doubt, oldest in flight, breaker open, dead letters, purge behind, store forgot.
    """
    found = {one["alert"]: one for one in rules()}

    assert {
        "OncewardInDoubt",
        "OncewardInFlightForLong",
        "OncewardBreakerOpen",
        "OncewardDeadLettersRising",
        "OncewardPurgeBehind",
        "OncewardStoreForgot",
    } <= set(found)
    assert all(one["annotations"]["description"] and one["labels"]["severity"] in ("page", "ticket") for one in rules())


def test_panels_have_a_place_of_their_own() -> None:
    """
    No two panels have one id or lie on each other, and none is wider than the page.
    """
    panels = json.loads(DASHBOARD.read_text())["panels"]
    cells = [
        (x, y)
        for place in (one["gridPos"] for one in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]

    assert len({one["id"] for one in panels}) == len(panels)
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


BUILT_IN = {"$__rate_interval": "5m"}
"""Variables that Grafana fills in by itself."""


@pytest.mark.fault("a-panel-cannot-be-parsed")
def test_every_expression_is_promql() -> None:
    """
    Read by a real parser, with Grafana's variables filled in: those that it has by itself, and those of the file.
    """
    document = json.loads(DASHBOARD.read_text())
    variables = BUILT_IN | {f"${one['name']}": "acme" for one in document["templating"]["list"]}
    filled = [re.sub(r"\$\w+", lambda found: variables[found[0]], text) for text in expressions()]

    wrong = {text: fault for text in filled if (fault := promql_fault(text))}

    assert wrong == {}


def test_the_parser_finds_mistakes() -> None:
    """
    A bracket, a range where none may be, a function that there is not.
    """
    mistakes = ("sum(rate(a[5m])", "rate(a)", "sum(a) by by (x)", "rated(a[5m])", 'a{b="c}')

    assert [text for text in mistakes if not promql_fault(text)] == []


def promql_fault(text: str) -> str:
    """What is wrong with an expression; nothing, if it is one."""
    try:
        promql_parser.parse(text)
    except ValueError as error:
        return str(error)
    return ""


@pytest.fixture(scope="module")
def promtool() -> str:
    found = shutil.which("promtool") or str(ROOT / "build" / "promtool")
    if not os.access(found, os.X_OK):
        pytest.skip("promtool is not there: make promtool fetches it from Debian's package prometheus")
    return found


def checked(*command: str, given: str | None = None) -> str:
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=120, check=False, cwd=OPS)
    return "" if done.returncode == 0 and not done.stderr.strip() else done.stdout + done.stderr


class TestPromtool:
    """Prometheus' own checker."""

    def test_it_reads_the_rules(self, promtool: str) -> None:
        """
        Syntax, and the types of expressions.
        """
        assert checked(promtool, "check", "rules", RULES.name) == ""

    def test_every_alert_rings_when_it_should(self, promtool: str) -> None:
        """
        `ops/prometheus-rules-test.yml`: silent before, ringing afterwards.
        """
        assert checked(promtool, "test", "rules", "prometheus-rules-test.yml") == ""

    def test_it_reads_what_we_write(self, promtool: str) -> None:
        """
        The text of metrics in which every event was counted, with names that nobody should choose.
        """
        metrics = Metrics()
        for happening in EventType:
            for name in ("pay", 'a"b\\c\nd', "é"):
                metrics(Event(happening, "0" * 12, "acme", name, 1, 1, "open", 2.0))
        metrics.count_call("POST", "executed", 0.3)

        assert checked(promtool, "check", "metrics", given=metrics.text()) == ""

    def test_the_checker_itself_finds_a_mistake(self, promtool: str, tmp_path: Path) -> None:
        """
        A rule with a bracket too many is refused.
        """
        wrong = tmp_path / "wrong.yml"
        wrong.write_text(RULES.read_text().replace("> 900", "> 900)"))

        assert "parse error" in checked(promtool, "check", "rules", str(wrong))
