"""
What each page shows, of a store on a bad day; and what each action does, with a line in the decision log.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import dashboard_scene as scene_module
import pytest
from dashboard_scene import SCOPE, SECONDS_MAX, run
from dashboard_visitor import Command, Open, Page, Visitor

from onceward import Gate
from onceward.audit import DecisionFilter, DecisionLog, DecisionView
from onceward.gate.operator_actions import digest_of_key, id_of_key
from onceward.stores import open_store


def decisions(url: str) -> list[DecisionView]:
    """Decisions besides the one that the scene came with."""
    with DecisionLog.open(url) as log:
        return [one for one in log.find(DecisionFilter()) if not str(one.actor).startswith("carol")]


def record_of(url: str, key: str) -> tuple[str, int]:
    store = open_store(url)
    try:
        found = store.load(id_of_key(SCOPE, key))
        assert found is not None
        return found.state, found.fence
    finally:
        store.close()


def id_of(key: str) -> str:
    return id_of_key(SCOPE, key).hex()


class TestLooking:
    def test_now(self, looker: Visitor) -> None:
        """
        Rates, duplicates prevented, what needs a person, what is in flight, breakers, and whether the store is well.
        """
        page = looker.get("/")

        for part in ("A person is needed", "in doubt : 5 wait for a decision", "Duplicates prevented", "Replayed"):
            assert part in page.said, page.said
        assert "replayed: a duplicate was prevented 19" in page.said
        assert "refused 4" in page.said
        assert "Breaker payments live:acme open" in page.said
        assert "Retry budget payments live:acme in use" in page.said
        assert "0.45 spent, 0.4 reserved by 1 call" in page.said
        assert "schema ok current" in page.said
        assert "store's memory problem the store forgot 1 claim while it was held" in page.said
        assert "<svg" in page.text and 'role="img"' in page.text

    def test_now_shows_who_holds_what(self, store: str, opened: Open, tmp_path: Path) -> None:
        """
        A claim of a process that lives: which host, which process, and how long its lease lasts.
        """
        holder = subprocess.Popen(
            [sys.executable, scene_module.__file__, str(tmp_path), "held"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            page = opened().visitor().get("/")
        finally:
            holder.kill()
            holder.communicate(timeout=SECONDS_MAX)

        assert "claimed export" in page.said
        assert f"process {holder.pid}" in page.said

    def test_records_are_found_by_each_thing(self, looker: Visitor) -> None:
        """
        By scope and key, digest, state, operation and time.
        """
        digest = digest_of_key(SCOPE, "charge:order-7")

        def found(query: str) -> Page:
            return looker.get(f"/records?{query}")

        assert digest in found(f"scope={SCOPE}&key=charge:order-7").text
        assert "order-8" not in found(f"scope={SCOPE}&key=charge:order-7").text
        assert digest in found(f"digest={digest}").text
        assert "order-8" not in found(f"digest={digest}").text
        assert "refund:order-1" in found("state=in_doubt").text
        assert "charge:order" not in found("state=in_doubt").text
        assert "refund:order-1" in found("operation=refund").text
        assert "charge:order" not in found("operation=refund").text
        assert "No records here" in found("until=2020-01-01T00:00").said
        assert digest_of_key(SCOPE, "charge:order-1") in found("since=2020-01-01T00:00&operation=charge").text
        assert "No records here" in found("scope=live:nobody&key=x").said

    def test_a_list_goes_on_where_it_ended(self, looker: Visitor) -> None:
        """
        Pages follow one another by id: every record is on one of them, and on one only.
        """
        seen: list[str] = []
        path = "/records"
        while path:
            page = looker.get(path)
            seen += page.links(r"/records/[0-9a-f]{64}")
            following = page.links(r"/records\?after=[0-9a-f]+")
            path = following[0] if following else ""

        assert len(seen) > 50
        assert len(seen) == len(set(seen))
        assert seen == sorted(seen)

    def test_a_record_is_a_timeline(self, looker: Visitor) -> None:
        """
        First claim, each attempt with its process, the holder, the fence, and the exact commands.
        """
        page = looker.get(f"/records/{id_of('refund:order-1')}")

        for part in ("Nobody knows whether it happened", "First claimed", "no end noted", "Held by process", "Fence",
                     "detected by its fingerprint"):  # fmt: skip
            assert part in page.said, part
        digest = digest_of_key(SCOPE, "refund:order-1")
        assert f"onceward records reconcile {digest} --fence {page_fence(page)} --did-not-happen" in page.said
        settled = looker.get(f"/records/{id_of('charge:order-1')}").said
        for part in ("Settled", "Replays end", "Forgotten", "executed", "replayed", "refused"):
            assert part in settled, part

    def test_plans_and_runs(self, looker: Visitor) -> None:
        """
        A plan's steps as a picture, with the one where it stopped; a run's tool calls as a waterfall.
        """
        listed = looker.get("/plans")
        plan = looker.get(listed.links(r"/plans/[0-9a-f]{64}")[0])
        runs = looker.get("/runs")
        priced, run_page = (looker.get(one) for one in runs.links(r"/run\?[^\"]+"))

        assert "2 of 3 begun steps done, 1 in doubt" in listed.said
        assert plan.said.index("reserve") < plan.said.index("charge") < plan.said.index("ship in doubt")
        assert "march running reconciler-v1 4 2 1" in runs.said
        assert run_page.said.count("record_expense") >= 2
        assert "no end recorded: it is running, or its worker was killed" in run_page.said
        assert run_page.text.count('class="span"') == 4
        kept = priced.links(r"/records\?digest=[0-9a-f]{12}")
        found = looker.get(looker.get(kept[0]).links(r"/records/[0-9a-f]{64}")[0])
        assert "in the run poster-7" in found.said and found.links(r"/run\?[^\"]+")
        assert "Spent 0.45 usd, and 0.4 usd reserved" in priced.said

    def test_outbox_and_inbox(self, looker: Visitor) -> None:
        """
        What is on its way out, and what came in; what was given up of both, with the reason.
        """
        outbox, inbox = looker.get("/outbox").said, looker.get("/inbox").said

        assert "billing delivered 3" in outbox
        assert "warehouse waiting 1" in outbox
        assert "422: they do not know this customer" in outbox
        assert "stripe live:acme 3 0 1 1 0 none" in inbox
        assert "evt_bad" in inbox

    @pytest.mark.fault("dashboard-believes-every-log")
    def test_a_log_that_was_changed_is_told(self, store: str, opened: Open, tmp_path: Path) -> None:
        """
        The chain is walked: whoever rewrites the log is found out on the page that shows it.
        """
        visitor = opened().visitor()
        decide(visitor, "refund:order-1", "did-not")
        fine = visitor.get("/decisions").said
        with sqlite3.connect(tmp_path / "shop.audit.db") as connection:
            connection.execute("UPDATE onceward_audit_texts SET text = 'bob' WHERE part = 'actor'")
        connection.close()

        changed = opened().visitor().get("/decisions").said

        assert "The chain holds. 4 entries: none is missing" in fine
        assert "The log was changed." in changed
        assert "its actor is not what was written" in changed

    def test_a_refresh_has_the_inside_only(self, looker: Visitor) -> None:
        """
        The script asks for what is within the page, and puts it in place of what was there.
        """
        page = looker.get("/doubt", **{"X-Onceward-Fragment": "1"})

        assert page.status == 200
        assert page.text.startswith("<h1>In doubt</h1>")
        assert "<html" not in page.text


def page_fence(page: Page) -> str:
    return page.said.partition("Fence ")[2].split()[0]


def decide(visitor: Visitor, key: str, answer: str, **more: str) -> Page:
    """As a person does: open it, answer, look again, and say yes."""
    opened = visitor.get(f"/doubt/{id_of(key)}")
    form = {"answer": answer, "fence": opened.value("fence"), **more}
    check = visitor.post(f"/doubt/{id_of(key)}/check", form)
    assert check.status == 200, check.said
    sure = {name: check.value(name) for name in ("answer", "result", "fence")}
    return visitor.post(f"/doubt/{id_of(key)}/decide", {**sure, "reason": more.get("reason", "")})


class TestDeciding:
    def test_it_happened(self, store: str, opened: Open) -> None:
        """
        The result that a person gives is what every sender gets from then on; who, when and why is in the log.
        """
        visitor = opened().visitor()

        done = visitor.follow(
            decide(visitor, "refund:order-1", "happened", result='{"refund": "re_1"}', reason="seen there")
        )

        assert "is settled." in done.said
        with Gate(store, scope=SCOPE) as gate:
            assert gate.run("refund:order-1", lambda: "again", name="refund", guarantee="blind") == {"refund": "re_1"}
        [made] = decisions(store)
        assert (made.action, made.via, made.outcome, made.reason) == (
            "record.reconcile",
            "dashboard",
            "done",
            "seen there",
        )
        assert made.actor is not None and made.actor.startswith("alice (")
        assert made.subject == id_of("refund:order-1")
        assert "Decided: record.reconcile" in visitor.get(f"/records/{id_of('refund:order-1')}").said

    def test_it_did_not(self, store: str, opened: Open) -> None:
        """
        The key is free, and the next attempt runs.
        """
        visitor = opened().visitor()

        done = visitor.follow(decide(visitor, "refund:order-2", "did-not"))

        assert "is released." in done.said
        assert f"/doubt/{id_of('refund:order-2')}" not in done.text
        with Gate(store, scope=SCOPE) as gate:
            assert gate.run("refund:order-2", lambda: "now", name="refund", guarantee="blind") == "now"
        assert [one.action for one in decisions(store)] == ["record.release"]

    def test_nothing_is_decided_by_the_first_look(self, store: str, opened: Open) -> None:
        """
        The page that asks again changes nothing, and writes nothing down.
        """
        visitor = opened().visitor()
        before = record_of(store, "refund:order-1")

        check = visitor.post(f"/doubt/{id_of('refund:order-1')}/check", {"answer": "did-not", "fence": before[1]})

        assert "If it happened after all, it happens twice." in check.said
        assert record_of(store, "refund:order-1") == before
        assert decisions(store) == []

    @pytest.mark.fault("dashboard-decides-whatever-stands-there")
    def test_a_decision_is_about_the_attempt_that_was_looked_at(self, store: str, opened: Open, tmp_path: Path) -> None:
        """
        While a person looks, somebody else decides, it runs again, and dies again. The first person's answer was about
        another attempt: it is refused, and nothing is changed.
        """
        visitor, key = opened().visitor(), "refund:order-1"
        _, seen = record_of(store, key)
        decide(visitor, key, "did-not")
        run(tmp_path, "killed", killed=True, NUMBER="1")
        run(tmp_path, "doubted_again")
        before = record_of(store, key)

        late = visitor.post(f"/doubt/{id_of(key)}/decide", {"answer": "did-not", "fence": seen})

        assert before[0] == "in_doubt" and before[1] > seen
        assert late.status == 409
        assert record_of(store, key) == before

    def test_what_is_no_answer_is_refused(self, store: str, opened: Open) -> None:
        """
        No result, a result that is not JSON, no answer, no fence: words, and nothing changes.
        """
        visitor, path = opened().visitor(), f"/doubt/{id_of('refund:order-1')}/decide"
        state, fence = record_of(store, "refund:order-1")

        for form in (
            {"answer": "happened", "result": "", "fence": fence},
            {"answer": "happened", "result": "{'a': 1}", "fence": fence},
            {"answer": "maybe", "fence": fence},
            {"answer": "did-not"},
            {"answer": "did-not", "fence": "-1"},
        ):
            assert visitor.post(path, form).status == 400, form

        assert record_of(store, "refund:order-1") == (state, fence)

    def test_a_reason_is_asked_for_where_it_is_required(self, store: str, opened: Open) -> None:
        """
        What holds for the command line and the API holds here.
        """
        subprocess.run(
            [sys.executable, "-m", "onceward", "audit", "reasons", "--required", "--store", store],
            check=False, capture_output=True, timeout=SECONDS_MAX,
        )  # fmt: skip
        with DecisionLog.open(store) as log:
            from onceward.audit import CLI, Operator

            log.require_reasons(True, Operator("alice", CLI, "house rule"))
        visitor = opened().visitor()

        assert decide(visitor, "refund:order-1", "did-not").status == 400
        assert decide(visitor, "refund:order-1", "did-not", reason="looked").status == 303

    @pytest.mark.fault("dashboard-decides-what-the-probe-does-not-know")
    def test_in_bulk_by_a_probe(self, store: str, opened: Open, tmp_path: Path) -> None:
        """
        The probe says of each whether it happened; what it does not know stays in doubt. First it is only shown.
        """
        (tmp_path / "probes.py").write_text(
            "from onceward import NOT_FOUND, Found\n\n"
            "def look(record):\n"
            "    if record.key.endswith('order-1'):\n"
            "        return Found({'refund': 're_1'})\n"
            "    if record.key.endswith('order-2'):\n"
            "        return NOT_FOUND\n"
            "    if record.key.endswith('order-3'):\n"
            "        raise RuntimeError('down')\n"
        )
        visitor = opened("--probe", "probes:look").visitor()

        shown = visitor.post("/doubt/probe")
        untouched = [record_of(store, f"refund:order-{number}")[0] for number in (1, 2, 3)]
        fields = {f"fence.{id_of(f'refund:order-{n}')}": record_of(store, f"refund:order-{n}")[1] for n in (1, 2, 3)}
        done = visitor.follow(visitor.post("/doubt/probe/decide", {**fields, "reason": "the provider's API"}))

        assert (
            "it happened" in shown.said and "it did not happen" in shown.said and "it raised RuntimeError" in shown.said
        )
        assert "Decide 2 as the probe says" in shown.said
        assert untouched == ["in_doubt"] * 3
        assert "2 decided as the probe says; 1 left as they are." in done.said
        assert [record_of(store, f"refund:order-{n}")[0] for n in (1, 2, 3)] == ["settled", "released", "in_doubt"]
        assert {one.reason for one in decisions(store)} == {"the provider's API"}


class TestGivenUp:
    def test_letting_go_of_a_letter(self, store: str, opened: Open) -> None:
        """
        Asked twice, and in the log.
        """
        visitor = opened().visitor()
        letters = visitor.get("/letters").links(r"/letters/[0-9a-f]{64}")
        sure = visitor.get(f"{letters[0]}/discard")

        done = visitor.follow(visitor.post(f"{letters[0]}/discard", {"reason": "done by hand"}))

        assert "Yes: discard it" in sure.said
        assert "is discarded." in done.said
        assert sorted(done.links(r"/letters/[0-9a-f]{64}")) == sorted(letters[1:])
        [made] = decisions(store)
        assert (made.action, made.reason, made.outcome) == ("letter.discard", "done by hand", "done")

    def test_doing_it_again_with_the_apps_own_handler(self, store: str, opened: Open, tmp_path: Path) -> None:
        """
        With --app, a letter is requeued under its own key; without, the page shows the command.
        """
        (tmp_path / "shop.py").write_text(
            "from onceward import Gate\n"
            f"gate = Gate({store!r}, scope='{SCOPE}')\n"
            "dead = gate.dead_letters(payload='plain')\n\n"
            "@dead.handler('mail', guarantee='repeatable')\n"
            "def mail(order_id, card):\n"
            "    with open('mails.txt', 'a') as sent:\n"
            "        sent.write(order_id + '\\\n')\n"
        )
        visitor = opened("--app", "shop:dead").visitor()
        page = visitor.get("/letters")
        letter = next(one for one in page.links(r"/letters/[0-9a-f]{64}") if "mail" in visitor.get(one).said)

        without = opened().visitor().get(letter).said
        done = visitor.post(f"{letter}/requeue", {"reason": "the server is up"})

        assert "This dashboard has no handlers." in without
        assert done.status == 303, done.said
        assert len((tmp_path / "mails.txt").read_text().splitlines()) == 1
        assert letter not in visitor.get("/letters").text
        assert [(one.action, one.outcome) for one in decisions(store)] == [("letter.requeue", "done")]

    def test_messages_and_events(self, store: str, opened: Open) -> None:
        """
        A message is sent again or deleted, an event is processed again: each asked twice, and in the log.
        """
        visitor = opened().visitor()
        outbox, inbox = visitor.get("/outbox"), visitor.get("/inbox")
        again = next(one for one in outbox.links(r"/outbox/requeue\?[^\"]+") if "partner-1" in one)
        [requeue] = inbox.links(r"/inbox/requeue\?[^\"]+")

        assert "Yes: send it again" in visitor.get(again).said
        assert "Yes: process it again" in visitor.get(requeue).said
        sent = visitor.follow(visitor.post("/outbox/requeue", {"id": "partner-1"}))
        due = visitor.post("/inbox/requeue", {"source": "stripe", "id": "evt_bad"})

        assert "partner waiting 1" in sent.said
        assert "stripe live:acme 3 1 0" in visitor.follow(due).said, due.said
        assert visitor.post("/outbox/discard", {"id": "partner-1"}).status == 409  # It is not dead any more.
        assert {one.action: one.outcome for one in decisions(store)} == {
            "message.requeue": "done",
            "event.requeue": "done",
            "message.discard": "failed",
        }


def test_the_command_ends_when_it_is_told_to(opened: Open) -> None:
    """
    Ctrl-C and SIGTERM end it, and it leaves nothing behind.
    """
    command: Command = opened()

    command.process.send_signal(signal.SIGINT)

    assert command.process.wait(SECONDS_MAX) in (0, 130, -signal.SIGINT)
    assert not Path(f"/proc/{command.process.pid}").exists() or os.name != "posix"
