"""
The dashboard of a real service: what a token may see and do there is what it may see and do over the API.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dashboard_visitor import Command, Page, Visitor

from onceward import Gate
from onceward.audit import DecisionFilter, DecisionLog
from onceward.messaging.inbox import Inbox
from onceward.messaging.inbox.stored_sources import StoredSource
from onceward.messaging.webhooks import StandardWebhooks
from servers import ending

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "service"))

from service_support import TABLE, Served

BASE = "/dashboard"
ADMIN_PAGES = ("", "/records", "/doubt", "/letters", "/plans", "/runs", "/inbox", "/decisions")
ALL_PAGES = (*ADMIN_PAGES, "/databases", "/ledger", "/account")


@pytest.fixture(scope="module")
def service() -> Iterator[Served]:
    """One service with two tenants, acme and rival, who both have something in doubt."""
    made = Served.started(ending.folder("onceward-dashboard-"), "--flood-burst", "100000", "--hooks-threads", "0")
    try:
        for tenant in ("acme", "rival"):
            token = made.new_token(tenant, role="admin")
            assert made.call("PUT", f"/v1/db/{tenant}/shop", token=token).status in (200, 201)
            assert made.call("POST", f"/v1/db/{tenant}/shop/query", {"sql": TABLE}, token=token).status == 200
            keyed = {"Idempotency-Key": f"{tenant}-e1"}
            insert = {"sql": "INSERT INTO events VALUES (?, ?)", "params": ["e1", "click"]}
            for _ in range(2):
                assert (
                    made.call("POST", f"/v1/db/{tenant}/shop/query", insert, token=token, headers=keyed).status == 200
                )
            delta = {"customerId": f"cus-of-{tenant}", "delta": -3, "reason": "call", "referenceId": "r1"}
            keyed = {"Idempotency-Key": "d1"}
            assert made.call("POST", "/api/v1/balance/delta", delta, token=token, headers=keyed).status < 300
            in_doubt(made, tenant, "charge:1")
            in_doubt(made, tenant, "charge:2")
        yield made
    finally:
        made.stop()


def in_doubt(service: Served, tenant: str, key: str) -> None:
    """Leave an operation of a tenant in doubt."""

    def boom() -> None:
        raise OSError("cut off")

    with Gate(service.store_url, scope=f"test:{tenant}") as gate, pytest.raises(OSError, match="cut off"):
        gate.run(key, boom, name=f"charge-of-{tenant}")


def id_of(service: Served, tenant: str, key: str) -> tuple[str, int, str]:
    with Gate(service.store_url, scope=f"test:{tenant}") as gate:
        found = gate.records.get(key)
        assert found is not None
        return found.id, found.fence, found.state


def visitor(service: Served, token: str, **form: str) -> Visitor:
    made = Visitor(service.address)
    made.log_in(f"{BASE}/login", {"token": token, **form})
    return made


def admin(service: Served, tenant: str = "acme") -> Visitor:
    return visitor(service, service.new_token(tenant, role="admin"))


class TestSeeing:
    def test_an_admin_sees_its_tenant(self, service: Served) -> None:
        """
        Every page opens; records are those of the store and those of keyed SQL.
        """
        who = admin(service)
        pages = {path: who.get(f"{BASE}{path}") for path in ALL_PAGES}

        assert {path: page.status for path, page in pages.items()} == dict.fromkeys(ALL_PAGES, 200)
        assert "charge-of-acme" in pages["/records"].text
        assert "acme-e1" in pages["/records"].text
        assert "replayed: a duplicate was prevented" in pages[""].said
        keyed = pages["/records"].links(rf"{BASE}/records/[0-9a-f]{{64}}")
        assert all(who.get(one).status == 200 for one in keyed)

    @pytest.mark.fault("dashboard-shows-other-tenants")
    def test_nothing_of_another_tenant_is_seen_or_decided(self, service: Served) -> None:
        """
        Another tenant's records look as if there were none, also to whoever knows their ids.
        """
        who = admin(service)
        theirs, fence, _ = id_of(service, "rival", "charge:1")
        texts = [who.get(f"{BASE}{path}").text for path in ALL_PAGES]
        texts.append(who.get(f"{BASE}/records?digest={theirs[:12]}").text)
        texts.append(who.get(f"{BASE}/records?scope=test:rival&key=charge:1").text)
        texts.append(who.get(f"{BASE}/records?scope=test:rival").text)

        assert [
            text for text in texts if "rival" in text.replace("test:rival&quot;", "").replace('value="test:rival"', "")
        ] == []
        for path in (f"/records/{theirs}", f"/doubt/{theirs}", "/ledger/customer?scope=test:rival&id=cus-of-rival"):
            assert who.get(f"{BASE}{path}").status == 404, path
        assert who.post(f"{BASE}/doubt/{theirs}/decide", {"answer": "did-not", "fence": fence}).status == 404
        assert who.get(f"{BASE}/account/rival").status == 404
        assert id_of(service, "rival", "charge:1")[2] == "in_doubt"

    def test_what_belongs_to_no_tenant_is_nobodys_here(self, service: Served) -> None:
        """
        The outbox is the operator's: onceward dashboard shows it, and a tenant's page does not.
        """
        who = admin(service)

        assert who.get(f"{BASE}/outbox").status == 404
        assert "/outbox" not in who.get(BASE).text
        assert "The chain holds" not in who.get(f"{BASE}/decisions").text  # It counts everybody's.

    @pytest.mark.fault("dashboard-opens-every-page-for-every-token")
    @pytest.mark.parametrize(
        ("options", "pages"),
        [
            ({"role": "read"}, ("/databases", "/ledger", "/account")),
            ({"role": "write"}, ("/databases", "/ledger", "/account")),
            ({"role": "read", "databases": ["shop"]}, ("/databases", "/account")),
            ({"role": "admin", "databases": ["shop"]}, ("/databases", "/account")),
        ],
    )  # fmt: skip
    def test_a_token_opens_the_pages_of_its_rights(
        self, service: Served, options: dict[str, object], pages: tuple[str, ...]
    ) -> None:
        """
        A token that may not read records over the API reads none here.
        """
        who = visitor(service, service.new_token("acme", **options))

        for path in ALL_PAGES:
            expected = 200 if path in pages else 303 if path == "" else 404
            assert who.get(f"{BASE}{path}").status == expected, path
        account = who.get(f"{BASE}/account")
        assert "Tokens</h2>" not in account.text

    def test_a_token_of_one_database_sees_that_one(self, service: Served) -> None:
        """
        The others of its tenant are not there for it.
        """
        owner = service.new_token("acme", role="admin")
        service.call("PUT", "/v1/db/acme/other", token=owner)
        who = visitor(service, service.new_token("acme", role="read", databases=["shop"]))

        assert who.get(f"{BASE}/databases/shop").status == 200
        assert who.get(f"{BASE}/databases/other").status == 404

    def test_no_secret_is_on_the_page_of_tokens(self, service: Served) -> None:
        """
        Ids, roles and times; the token itself is nowhere.
        """
        token = service.new_token("acme", role="admin")
        who = visitor(service, token)

        pages = [who.get(f"{BASE}{path}").text for path in ALL_PAGES]

        assert [text for text in pages if token in text or token.rpartition("_")[2] in text] == []
        assert token.split("_")[2] in who.get(f"{BASE}/account").text


class TestActing:
    def test_a_decision_of_a_token_is_the_tenants_own(self, service: Served) -> None:
        """
        Decided with the fence that was shown; in the log under the token's id, as a decision over the API is.
        """
        token = service.new_token("acme", role="admin")
        who = visitor(service, token)
        id, fence, _ = id_of(service, "acme", "charge:1")

        done = who.post(
            f"{BASE}/doubt/{id}/decide", {"answer": "happened", "result": "1", "fence": fence, "reason": "seen"}
        )

        assert done.status == 303, done.said
        assert id_of(service, "acme", "charge:1")[2] == "settled"
        with DecisionLog.open(service.store_url) as log:
            [made] = log.find(DecisionFilter(subject=id))
        assert (made.actor, made.via, made.tenant) == (f"token {token.split('_')[2]}", "api", "acme")
        assert "seen" in who.get(f"{BASE}/decisions").said

    def test_whoever_only_looks_decides_nothing(self, service: Served) -> None:
        """
        A session may have less than its token: also at later requests, when the token is asked for again.
        """
        who = visitor(service, service.new_token("acme", role="admin"), look="on")
        id, fence, _ = id_of(service, "acme", "charge:2")

        assert who.get(f"{BASE}/doubt").status == 200
        assert who.post(f"{BASE}/doubt/{id}/decide", {"answer": "did-not", "fence": fence}).status == 403
        assert id_of(service, "acme", "charge:2")[2] == "in_doubt"

    @pytest.mark.fault("dashboard-forgets-to-ask-for-the-token-again")
    def test_a_revoked_token_is_out(self, service: Served) -> None:
        """
        A session ends with its token, within the half second that a token is remembered.
        """
        token = service.new_token("acme", role="admin")
        who = visitor(service, token)
        with service.access() as access:
            access.revoke_token(token.split("_")[2])

        for _ in range(2_000):  # Seen within half a second: far fewer requests than these.
            page = who.get(f"{BASE}/records")
            if page.status == 303:
                break

        assert page.headers.get("location") == f"{BASE}/login"

    @pytest.mark.fault("dashboard-writes-by-its-query-box")
    def test_the_query_box_reads(self, service: Served) -> None:
        """
        A statement that reads is run with the token's rights; one that writes is refused before it is sent anywhere.
        """
        who = admin(service)

        def ask(sql: str) -> Page:
            return who.post(f"{BASE}/databases/shop", {"sql": sql})

        found, wrong = ask("SELECT id, name, '<b>' AS odd FROM events"), ask("SELECT * FROM missing_table")
        writes = [ask(sql) for sql in ("DELETE FROM events", "INSERT INTO events VALUES ('x', 'y')", "")]
        after = ask("SELECT count(*) FROM events")

        assert "e1 click <b>" in found.said
        assert "<b>" not in found.text.replace("<body>", "")
        assert (wrong.status, "no such table" in wrong.said) == (200, True)
        assert [one.status for one in writes] == [400, 400, 400]
        assert re.search(r"count\(\*\) 1 ", after.said), after.said

    @pytest.mark.fault("dashboard-requeues-events-of-others")
    def test_an_event_of_another_tenant_is_not_requeued(self, service: Served) -> None:
        """
        A source is found by its name, whoever's it is: its scope is asked before anything is done.
        """
        scheme = StandardWebhooks()
        with Inbox(service.store_url, stored_sources=True) as inbox:
            inbox.store_source(
                StoredSource("theirs", "test:rival", scheme, ("env:NOT_SET",), "json:loads", None, 1, None, False)
            )
        who = admin(service)

        refused = who.post(f"{BASE}/inbox/requeue", {"source": "theirs", "id": "evt_1"})

        assert refused.status == 409
        with DecisionLog.open(service.store_url) as log:
            assert log.find(DecisionFilter(action="event.requeue")) == []


def ledger_pages(visitor: Visitor) -> Iterator[Page]:
    """The list of customers, page by page."""
    path = "/ledger"
    while path:
        page = visitor.get(path)
        yield page
        path = next(iter(page.links(r"/ledger\?[^\"]+")), "")


class TestOperator:
    """`onceward dashboard` over a service's store: for whoever runs it."""

    @pytest.fixture
    def operator(self, service: Served, tmp_path: Path) -> Iterator[Visitor]:
        command = Command(service.store_url, folder=tmp_path)
        try:
            yield command.visitor()
        finally:
            command.stop()

    def test_every_tenants_ledger_and_tokens(self, service: Served, operator: Visitor) -> None:
        """
        Both tenants with what they hold against what they may, their customers, balances and chains; no secret.
        """
        with service.access() as access:
            access.set_quota("acme", records=1_000, bytes=None)
        tenants, ledger = operator.get("/account"), list(ledger_pages(operator))
        customers = " ".join(page.said for page in ledger)
        one = operator.get("/account/acme")
        customer = operator.get("/ledger/customer?scope=test:rival&id=cus-of-rival")

        assert {"/account/acme", "/account/rival"} <= set(tenants.links(r"/account/\w+"))
        assert re.search(r"Records \d+ of 1,000 records", one.said), one.said
        assert "Tokens" in one.said
        assert "cus-of-acme" in customers and "cus-of-rival" in customers
        assert "The chain holds. Unchanged since written: 1 delta." in customer.said
        assert "-3 after the latest delta" in customer.said
        for page in (tenants, *ledger, one, customer):
            assert not re.search(r"ow_(test|live)_", page.text)

    @pytest.mark.fault("pages-of-customers-leave-some-out")
    def test_every_customer_is_on_one_page(self, service: Served, operator: Visitor) -> None:
        """
        Pages follow one another across tenants: a name that comes early with one tenant does not hide another's.
        """
        for tenant, letter in (("acme", "z"), ("rival", "a")):
            token = service.new_token(tenant, role="admin")
            deltas = [
                {"customerId": f"{letter}{number}", "delta": 1, "reason": "call", "referenceId": "r"}
                for number in range(60)
            ]
            sent = {"deltas": deltas}
            made = service.call(
                "POST", "/api/v1/balance/delta/batch", sent, token=token, headers={"Idempotency-Key": f"many-{letter}"}
            )
            assert made.status < 300, made
        seen = [link for page in ledger_pages(operator) for link in page.links(r"/ledger/customer\?[^\"]+")]

        assert len(seen) == len(set(seen)) == 122

    def test_a_store_of_a_library_has_no_such_pages(self, looker: Visitor) -> None:
        """
        Whoever uses the library alone is not shown a menu of what there is none of; nor are tables made for it.
        """
        start = looker.get("/")

        assert "Ledger" not in start.said and "Tokens and tenants" not in start.said
        assert (looker.get("/ledger").status, looker.get("/account").status) == (404, 404)


class TestApiPage:
    def test_every_sample_is_one_that_works(self, service: Served) -> None:
        """
        By app, with what it is; whatever happens once per key is sent with a key; nothing is inline or from elsewhere.
        """
        page = Visitor(service.address).get("/")
        shown = re.findall(r'<pre class="command wrapped" tabindex="0"><code>(.*?)</code>', page.text, re.DOTALL)
        samples = [one for one in shown if one.startswith("curl")]

        assert page.status == 200
        assert [one for one in shown if one not in samples and not one.startswith("export URL=")] == []
        for app in ("SQL", "Records", "Balance", "Usage"):
            assert f">{app}</h2>" in page.text, app
        keyed = [one for one in samples if re.search(r"/(query|batch|delta|checkpoint)", one) and "-X POST" in one]
        assert len(keyed) >= 5
        assert [one for one in keyed if "Idempotency-Key" not in one] == []
        assert all("Bearer $TOKEN" in one for one in samples if "/hooks/" not in one)
        assert "unsafe" not in page.headers["content-security-policy"]
        assert re.findall(r"<style|\sstyle=|\son[a-z]+=|<script(?! src=\"/page/)", page.text) == []
        for name in ("dashboard.css", "dashboard.js", "api.js"):
            assert Visitor(service.address).get(f"/page/{name}").status == 200
        assert Visitor(service.address).get("/page/nothing.js").status == 404


class TestLogin:
    def test_a_wrong_token_is_told_nothing(self, service: Served) -> None:
        """
        The same words whatever is wrong, and no cookie.
        """
        for token in ("x", "ow_test_abcdefghijkl_0000000000000000000000000000000000000000000"):
            refused = Visitor(service.address).post(f"{BASE}/login", {"token": token})
            assert (refused.status, refused.headers.get("set-cookie")) == (401, None)

    def test_logins_are_counted_as_calls_are(self, tmp_path: Path) -> None:
        """
        Whoever tries tokens at the login waits as whoever tries them over the API.
        """
        made = Served.started(ending.folder("onceward-dashboard-"), "--flood-burst", "3")
        try:
            statuses = [Visitor(made.address).post(f"{BASE}/login", {"token": "x"}).status for _ in range(6)]
        finally:
            made.stop()

        assert statuses == [401, 401, 401, 429, 429, 429]

    def test_it_can_be_switched_off(self) -> None:
        """
        Then there is nothing at that address.
        """
        made = Served.started(ending.folder("onceward-dashboard-"), "--dashboard", "off")
        try:
            assert made.call("GET", BASE).status == 404
        finally:
            made.stop()
