"""
The dashboard in a real browser: each page in both themes and at two widths, no violation of accessibility, each action
by its own form, live without reloading, and with the keyboard alone.

`make test` looks at each page once, as a light desktop or as a dark phone; `make test-browser` (BROWSER=all) looks at
every page at both widths and in both themes, and leaves pictures in `build/screenshots`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dashboard_scene import SCOPE, copy, half_moved_redis
from dashboard_visitor import PAGES, Command

from onceward import Gate
from onceward.gate.operator_actions import id_of_key
from servers import ending, node
from servers.chromium import Chromium, browser

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "service"))

from service_support import TABLE, Served

ALL = os.environ.get("BROWSER") == "all"
LOOKS = [(1280, False), (390, True), (1280, True), (390, False)]
PICTURES = Path(__file__).resolve().parents[2] / "build" / "screenshots"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
OVERFLOWING = """{
  const cards = [...document.querySelectorAll('.card')].filter(one => one.scrollWidth > one.clientWidth + 1);
  return cards.map(one => one.querySelector('h2, h3, label')?.innerText || one.className);
}"""
"""Cards that a person would have to scroll sideways."""
SERVICE_PAGES = ("", "/records", "/decisions", "/databases", "/databases/shop", "/ledger", "/account")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    """One browser for all tests of this file."""
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def axe() -> str:
    """The checker, as its own file."""
    return (node.needed_packages() / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


SHOP = """
from onceward import Gate
gate = Gate({url!r}, scope={scope!r})
dead = gate.dead_letters(payload="plain")

@dead.handler("mail", guarantee="repeatable")
def mail(order_id, card):
    return "sent"
"""
PROBE = """
from onceward import Found

def look(record):
    return Found({"seen": True}) if record.key.endswith("order-3") else None
"""


@pytest.fixture
def dashboard(scene: Path, tmp_path: Path) -> Iterator[Command]:
    """A dashboard over a copy of the scene, with a probe, values shown, and handlers."""
    copy(scene, tmp_path)
    url = "sqlite:///shop.db"  # From where the command runs: pages show no path of this machine.
    (tmp_path / "probes.py").write_text(PROBE)
    (tmp_path / "shop.py").write_text(SHOP.format(url=url, scope=SCOPE))
    flags = ("--role", "admin", "--show-values", "--probe", "probes:look", "--app", "shop:dead")
    command = Command(url, *flags, folder=tmp_path)
    try:
        yield command
    finally:
        command.stop()


def violations(chromium: Chromium, axe: str) -> list[str]:
    """What the checker has against the page that is shown."""
    found = chromium.run(
        "{ if (!window.axe) { "
        + axe
        + " }; const found = await axe.run(document, {runOnly: "
        + json.dumps(RULES)
        + "});"
        " return JSON.stringify(found.violations.map(v => [v.id, v.nodes.map(n => n.html.slice(0, 160))])); }"
    )
    return [f"{rule}: {nodes}" for rule, nodes in json.loads(found)]


def check(chromium: Chromium, axe: str, url: str | None, name: str) -> list[str]:
    """Look at a page in every way; what is wrong with it. Without a URL: at the page that is there."""
    wrong: list[str] = []
    for width, dark in LOOKS if ALL else [LOOKS[len(name) % 2]]:
        chromium.look(width, dark=dark)
        if url is not None:
            chromium.open(url)
        title = chromium.run("{ return document.title; }")
        if ("no such page" in title) != (name == "missing"):
            wrong.append(f"{name}: {title}")
        where = f"{name}-{width}-{'dark' if dark else 'light'}"
        wrong += [f"{where}: {one}" for one in violations(chromium, axe)]
        too_wide = chromium.run(
            "{ return document.documentElement.scrollWidth - document.documentElement.clientWidth; }"
        )
        if too_wide > 0:
            wrong.append(f"{where}: {too_wide} pixels too wide")
        wrong += [f"{where}: {one} is wider than what it is in" for one in chromium.run(OVERFLOWING)]
        if ALL:
            PICTURES.mkdir(parents=True, exist_ok=True)
            chromium.picture(PICTURES / f"{where}.png")
    return wrong


def links(chromium: Chromium, start: str) -> list[str]:
    """Links of the page that begin so."""
    found: list[str] = json.loads(
        chromium.run(
            "{ return JSON.stringify([...document.querySelectorAll('main a')].map(a => a.getAttribute('href'))"
            f".filter(h => h && h.startsWith({json.dumps(start)}))); }}"
        )
    )
    return found


def test_every_page_is_accessible_and_fits(chromium: Chromium, axe: str, dashboard: Command) -> None:
    """
    No violation of WCAG AA on any page, nothing wider than the screen, in every look.
    """
    wrong = check(chromium, axe, f"{dashboard.address}/login", "login")
    chromium.open(dashboard.login)
    paths = {path.strip("/") or "now": path for path in PAGES}
    for start, name in (("/doubt/", "doubt"), ("/letters/", "letters"), ("/plans/", "plans"), ("/run?", "runs")):
        chromium.open(f"{dashboard.address}/{name}")
        paths[f"{name}-one"] = links(chromium, start)[0]
    paths["record"] = f"/records/{id_of_key(SCOPE, 'charge:order-1').hex()}"
    paths["record-in-doubt"] = f"/records/{id_of_key(SCOPE, 'refund:order-1').hex()}"
    paths["records-found"] = "/records?scope=live:acme&state=in_doubt"
    paths["letters-discard"] = f"{paths['letters-one']}/discard"
    paths["outbox-discard"] = "/outbox/discard?id=partner-1"
    paths["inbox-requeue"] = "/inbox/requeue?source=stripe&id=evt_bad"
    paths["missing"] = "/nothing"
    for name, path in paths.items():
        wrong += check(chromium, axe, dashboard.address + path, name)
    # Pages that only a form leads to.
    chromium.open(f"{dashboard.address}/doubt")
    chromium.button("Ask the probe about all of them…")
    wrong += check(chromium, axe, None, "probe")
    chromium.open(f"{dashboard.address}/doubt/{id_of_key(SCOPE, 'refund:order-1').hex()}")
    chromium.button("It did not happen…")
    wrong += check(chromium, axe, None, "second-look")

    assert wrong == []


def test_a_store_that_was_left_half_moved(chromium: Chromium, axe: str, tmp_path: Path) -> None:
    """
    What is left of its migration stands on the page Now, with the command that goes on, and can be copied.
    """
    command = Command(half_moved_redis(), folder=tmp_path)
    try:
        chromium.look(1280)
        chromium.open(command.login)
        wrong = check(chromium, axe, f"{command.address}/", "now-half-moved")
        chromium.look(1280)
        chromium.open(f"{command.address}/")
        told = chromium.page.get_by_role("row").filter(has_text="has not finished")
        told.get_by_role("button", name="Copy").click()
        copied = chromium.run("navigator.clipboard.readText()")
    finally:
        command.stop()

    assert wrong == []
    assert copied == "onceward store migrate"


def test_a_checker_that_finds_nothing_proves_nothing(chromium: Chromium, axe: str) -> None:
    """
    A field without a label and grey on grey are found.
    """
    chromium.open("data:text/html,<html><title>x</title><input><p style='color:%23bbb;background:%23ccc'>grey</p>")

    found = {one.partition(":")[0] for one in violations(chromium, axe)}

    assert {"label", "color-contrast", "html-has-lang"} <= found


def test_each_action_by_its_own_form(chromium: Chromium, dashboard: Command, tmp_path: Path) -> None:
    """
    As a person does it, with a mouse and a keyboard: each is asked about again, done, told, and in the decision log.
    """
    chromium.look(1280)
    chromium.open(dashboard.login)

    def at(path: str) -> None:
        chromium.open(dashboard.address + path)

    def told() -> str:
        return chromium.page.get_by_role("alert").inner_text()

    done = {}
    at(f"/doubt/{id_of_key(SCOPE, 'refund:order-1').hex()}")
    chromium.fill("Its result, as JSON", '{"refund": "re_7"}')
    chromium.button("It happened…")
    assert "You are about to decide" in chromium.said
    chromium.fill("Why (optional)", "seen")
    chromium.button("Yes: it happened")
    done["happened"] = told()
    at(f"/doubt/{id_of_key(SCOPE, 'refund:order-2').hex()}")
    chromium.button("It did not happen…")
    chromium.button("Yes: it did not happen")
    done["did not"] = told()
    chromium.button("Ask the probe about all of them…")
    chromium.button("Decide 1 as the probe says")
    done["probe"] = told()
    at("/letters")
    chromium.page.get_by_role("row").filter(has_text="mail:order-1").get_by_role("link").first.click()
    chromium.button("Do it again")
    done["letter again"] = told()
    chromium.page.get_by_role("row").filter(has_text="mail:order-2").get_by_role("link").first.click()
    chromium.link("Discard…")
    chromium.button("Yes: discard it")
    done["letter gone"] = told()
    for link, yes in (("Send again… partner-1", "send it again"), ("Discard… partner-2", "delete it")):
        at("/outbox")
        chromium.link(link)
        chromium.button(f"Yes: {yes}")
        done[link] = told()
    chromium.link("Enable… legacy")
    chromium.button("Yes: enable it")
    done["endpoint"] = told()
    at("/inbox")
    chromium.link("Process again…")
    chromium.button("Yes: process it again")
    done["event"] = told()
    at("/decisions")
    log = chromium.said
    chromium.page.get_by_role("button", name="Log out").click()
    chromium.page.wait_for_url("**/login")

    assert done["happened"].endswith("is settled.") and done["did not"].endswith("is released.")
    assert done["probe"] == "1 decided as the probe says."
    assert all(done.values()), done
    for action in ("record.reconcile", "record.release", "letter.requeue", "letter.discard", "message.requeue",
                   "message.discard", "endpoint.enable", "event.requeue"):  # fmt: skip
        assert action in log, (action, log)
    assert "alice" in log and "seen" in log and "failed" not in log


def test_records_are_searched_for(chromium: Chromium, dashboard: Command) -> None:
    """
    By state and operation; from what was found to the record, as a timeline.
    """
    chromium.look(390, dark=True)
    chromium.open(dashboard.login)
    chromium.open(f"{dashboard.address}/records")
    chromium.page.get_by_label("State").select_option("in_doubt")
    chromium.fill("Operation begins with", "ref")
    chromium.button("Search")
    rows = chromium.page.get_by_role("main").get_by_role("row").filter(has_text="refund:order-").count()
    chromium.link(id_of_key(SCOPE, "refund:order-1").hex()[:12])

    assert rows == 3
    assert "Nobody knows whether it happened." in chromium.said
    assert "First claimed" in chromium.said


def test_a_page_is_live_without_reloading(chromium: Chromium, dashboard: Command, tmp_path: Path) -> None:
    """
    What is decided elsewhere goes from the page by itself; a refresh takes nothing from whoever is reading.
    """
    chromium.look(1280)
    chromium.open(dashboard.login)
    chromium.open(f"{dashboard.address}/doubt")
    chromium.run("{ window.mark = 'the same page'; }")
    before = len(set(links(chromium, "/doubt/")))
    with Gate(f"sqlite:///{tmp_path}/shop.db", scope=SCOPE) as gate:
        from onceward import NOT_FOUND

        gate.reconcile("refund:order-2", NOT_FOUND)

    after = chromium.run(
        "{ const count = () => new Set([...document.querySelectorAll('main a.button')].map(a => a.href)).size;"
        f" while (count() >= {before}) await new Promise(done => setTimeout(done, 50));"
        " return [count(), window.mark]; }"
    )

    assert after == [before - 1, "the same page"]


def test_with_the_keyboard_alone(chromium: Chromium, dashboard: Command) -> None:
    """
    The first stop is the link to the content; every link and button can be reached, and shows that it is.
    """
    chromium.look(1280)
    chromium.open(dashboard.login)
    chromium.open(f"{dashboard.address}/doubt")
    stops = []
    for _ in range(16):
        chromium.press("Tab")
        stops.append(
            chromium.run(
                "{ const at = document.activeElement;"
                " return [at.innerText.trim(), getComputedStyle(at).outlineStyle]; }"
            )
        )

    texts = [text for text, _ in stops]
    assert texts[0] == "Skip to content"
    for name in ("onceward", "Log out", "Now", "Records", "Decisions", "Pause"):
        assert any(name in text for text in texts), (name, texts)
    assert [text for text, outline in stops if outline == "none"] == []


def test_nothing_is_blocked_or_fetched_from_elsewhere(chromium: Chromium, dashboard: Command) -> None:
    """
    The policy allows all that the pages use: style and script are there, and nothing else was asked for.
    """
    chromium.open(dashboard.login)
    chromium.open(f"{dashboard.address}/")
    loaded: list[Any] = chromium.run(
        "{ return [getComputedStyle(document.querySelector('.top')).display, document.querySelector('.live') !== null,"
        " performance.getEntriesByType('resource').map(r => new URL(r.name).origin)"
        ".every(o => o === location.origin)]; }"
    )

    assert loaded == ["flex", True, True]


@pytest.fixture(scope="module")
def service() -> Iterator[Served]:
    """A service with a tenant that has a quota, pays in advance, and has a database and a ledger."""
    made = Served.started(ending.folder("onceward-dashboard-"))
    try:
        token = made.new_token("acme", role="admin")
        made.call("PUT", "/v1/db/acme/shop", token=token)
        made.call("POST", "/v1/db/acme/shop/query", {"sql": TABLE}, token=token)
        for number in range(6):
            keyed = {"Idempotency-Key": f"k{number}"}
            insert = {"sql": "INSERT INTO events VALUES (?, ?)", "params": [f"e{number}", "click"]}
            made.call("POST", "/v1/db/acme/shop/query", insert, token=token, headers=keyed)
            delta = {"customerId": "cus_17", "delta": number - 2, "reason": "call", "referenceId": f"r{number}"}
            made.call("POST", "/api/v1/balance/delta", delta, token=token, headers=keyed)
        with made.access() as access:
            access.set_quota("acme", records=100, bytes=1_000_000)
            access.top_up("acme", 25_000_000_000, reference="first", begin_prepaid=True)
        yield made
    finally:
        made.stop()


def test_the_pages_of_a_service(chromium: Chromium, axe: str, service: Served) -> None:
    """
    Login by a token in the form; the tenant's own pages, the query box, the ledger.
    """
    chromium.look(1280)
    chromium.open(f"{service.address}/dashboard/login")
    chromium.fill("Token", service.new_token("acme", role="admin"))
    chromium.button("Log in")
    wrong = []
    for path in (*SERVICE_PAGES, "/ledger/customer?scope=test:acme&id=cus_17"):
        name = "service-" + (path.strip("/").partition("?")[0].replace("/", "-") or "now")
        wrong += check(chromium, axe, f"{service.address}/dashboard{path}", name)
    chromium.look(1280)
    chromium.open(f"{service.address}/dashboard/account")
    account = chromium.said
    chromium.open(f"{service.address}/dashboard/databases/shop")
    chromium.fill("A statement that reads", "SELECT * FROM events")
    chromium.button("Run")
    wrong += check(chromium, axe, None, "service-query")

    assert wrong == []
    assert "e5" in chromium.said
    assert "of 100 records" in account and "units left" in account


def test_a_services_store_for_whoever_runs_it(chromium: Chromium, axe: str, service: Served, tmp_path: Path) -> None:
    """
    `onceward dashboard` over it has every tenant's ledger and tokens.
    """
    command = Command(service.store_url, folder=tmp_path)
    try:
        chromium.look(1280)
        chromium.open(command.login)
        wrong = []
        for path in ("/account", "/account/acme", "/ledger"):
            name = f"operator{path.replace('/', '-')}"
            wrong += check(chromium, axe, command.address + path, name)
        customers = chromium.said
    finally:
        command.stop()

    assert wrong == []
    assert "cus_17" in customers


def test_the_page_of_the_api_on_a_phone(chromium: Chromium, axe: str, service: Served) -> None:
    """
    A sample is copied with its key; a request is sent with a token, and sent again: it happened once.
    """
    wrong = check(chromium, axe, f"{service.address}/", "api")
    chromium.look(390, dark=True)
    chromium.open(f"{service.address}/")
    one = chromium.page.get_by_role("article").filter(has_text="Run one statement, once per key.")
    one.get_by_role("button", name="Copy").click()
    copied = chromium.run("navigator.clipboard.readText()")
    first = chromium.page.locator("#try pre code").inner_text()
    chromium.fill("Token", service.new_token("acme", role="admin"))
    one.get_by_text("Try it", exact=True).click()
    one.get_by_label("namespace").fill("acme")
    one.get_by_label("database").fill("shop")
    one.get_by_label("Idempotency-Key").fill("from-a-phone")
    answers = []
    for mark in ("200", "Idempotency-Replayed: true"):
        one.get_by_role("button", name="Send").click()
        chromium.page.locator(".answer").get_by_text(mark).first.wait_for()
        answers.append(one.locator(".answer").inner_text())
    wrong += check(chromium, axe, None, "api-tried")

    assert wrong == []
    assert copied.startswith('curl -i -X POST "$URL/v1/db/demo/shop/query" ')
    assert "-H 'Idempotency-Key: query-1'" in copied and "Copy" not in copied
    assert first.startswith(f"export URL={service.address} TOKEN=")
    assert answers[1].partition("\n")[2] == answers[0].partition("\n")[2]


@pytest.mark.skipif(not ALL, reason="the dashboard of an empty store is looked at by make test-browser")
def test_a_store_where_nothing_happened(chromium: Chromium, axe: str, tmp_path: Path) -> None:
    """
    An empty store says on every page what to do.
    """
    with Gate(f"sqlite:///{tmp_path}/empty.db", scope=SCOPE) as gate:
        gate.records.list()
    command = Command(f"sqlite:///{tmp_path}/empty.db", folder=tmp_path)
    try:
        chromium.look(1280)
        chromium.open(command.login)
        wrong = [
            one for path in PAGES for one in check(chromium, axe, command.address + path, f"empty{path.strip('/')}")
        ]
        chromium.open(f"{command.address}/")
        told = chromium.run("{ return document.querySelector('main').innerText; }")
    finally:
        command.stop()

    assert wrong == []
    assert "Nothing needs attention." in told
