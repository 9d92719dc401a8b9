"""
Who comes in, what they may do, and what no page ever shows.
"""

from __future__ import annotations

import re

import pytest
from dashboard_scene import HOSTILE, SECRET
from dashboard_visitor import PAGES, Command, Open, Page, Visitor

from onceward.dashboard.app import HEADERS
from onceward.gate.operator_actions import find_records
from onceward.stores import open_store


def every_page(visitor: Visitor) -> dict[str, Page]:
    """All pages of the menu, and one of each kind that they lead to."""
    found = {path: visitor.get(path) for path in PAGES}
    for path in (*PAGES,):
        for pattern in (
            r"/records/[0-9a-f]{64}",
            r"/doubt/[0-9a-f]{64}",
            r"/letters/[0-9a-f]{64}",
            r"/plans/[0-9a-f]+",
        ):
            for link in found[path].links(pattern)[:60]:
                found.setdefault(link, visitor.get(link))
        for link in found[path].links(r"/run\?[^\"]+"):
            found.setdefault(link, visitor.get(link))
    return found


def state_of(url: str, digest: str) -> tuple[str, int]:
    store = open_store(url)
    try:
        [record] = find_records(store, digest)
        return record.state, record.fence
    finally:
        store.close()


def first_doubt(visitor: Visitor) -> str:
    return visitor.get("/doubt").links(r"/doubt/[0-9a-f]{64}")[0].removeprefix("/doubt/")


class TestComingIn:
    @pytest.mark.fault("dashboard-shows-pages-to-strangers")
    def test_nobody_sees_anything_without_a_login(self, shared: Command) -> None:
        """
        Without a session every page leads to the login, and no action is carried out.
        """
        stranger = Visitor(shared.address)

        for path in PAGES:
            assert (stranger.get(path).status, stranger.get(path).headers.get("location")) == (303, "/login")
            assert stranger.get(path, **{"X-Onceward-Fragment": "1"}).status == 401
        assert stranger.post("/doubt/probe").status == 303
        assert stranger.get("/static/dashboard.css").status == 200

    @pytest.mark.fault("a-login-code-works-twice")
    def test_a_code_works_once(self, opened: Open) -> None:
        """
        A login that somebody finds in a history or a log afterwards opens nothing.
        """
        command = opened()
        first = command.login.removeprefix(command.address)
        Visitor(command.address).log_in(first)
        second = command.read_login()

        again = Visitor(command.address).get(first)

        assert (again.status, again.headers.get("set-cookie")) == (401, None)
        assert "not valid" in again.said
        Visitor(command.address).log_in(second.removeprefix(command.address))

    def test_the_cookie_is_for_this_site_and_no_script(self, opened: Open) -> None:
        """
        The cookie is not for scripts and not for other sites; behind TLS it does not travel without it.
        """
        command = opened()
        path = command.login.removeprefix(command.address)

        set_by = Visitor(command.address).get(path, **{"X-Forwarded-Proto": "https"}).headers["set-cookie"]

        assert re.fullmatch(
            r"onceward_dashboard_[0-9a-f]{8}=[0-9a-f]{64}; HttpOnly; Max-Age=28800; Path=/; SameSite=strict; Secure",
            set_by,
        )

    @pytest.mark.fault("two-dashboards-of-one-machine-share-a-cookie")
    def test_two_dashboards_on_one_machine_are_two(self, opened: Open) -> None:
        """
        A browser keeps cookies by host and not by port: logging in at one does not log out of the other.
        """
        first, second = opened().visitor(), opened().visitor()
        jar = dict(one.cookie.split("=", 1) for one in (first, second) if one.cookie is not None)
        first.cookie = second.cookie = "; ".join(f"{name}={value}" for name, value in jar.items())

        assert (first.get("/records").status, second.get("/records").status) == (200, 200)

    def test_a_login_from_another_site_is_refused(self, shared: Command) -> None:
        """
        Nobody is logged in by a page of somebody else's.
        """
        refused = Visitor(shared.address).post("/login", {"token": "x"}, Origin="https://evil.example")

        assert (refused.status, refused.headers.get("set-cookie")) == (403, None)

    def test_logging_out_ends_the_session(self, opened: Open) -> None:
        """
        A cookie that somebody kept is worth nothing afterwards.
        """
        visitor = opened().visitor()
        kept = visitor.cookie

        left = visitor.post("/logout")
        visitor.cookie = kept

        assert left.headers["location"] == "/login"
        assert visitor.get("/records").headers["location"] == "/login"


class TestEveryPage:
    def test_no_page_allows_what_is_not_ours(self, looker: Visitor) -> None:
        """
        No script or style but our own files, no frames, nothing kept; and no page has anything inline.
        """
        for path, page in every_page(looker).items():
            assert page.status == 200, path
            assert {name: page.headers[name] for name in HEADERS} == HEADERS
            assert "unsafe" not in page.headers["content-security-policy"]
            assert re.findall(r"<style|\sstyle=|\son[a-z]+=|javascript:", page.text) == [], path
            assert re.findall(r"<script(?! src=\"/static/)", page.text) == [], path
            assert re.findall(r"(?:src|href|action)=\"(?:https?:)?//", page.text) == [], path

    @pytest.mark.fault("dashboard-escapes-nothing")
    def test_what_others_wrote_is_text(self, looker: Visitor) -> None:
        """
        A key, an operation or an error message with a script in it is shown, and never run.
        """
        pages = every_page(looker)

        assert [path for path, page in pages.items() if "<script>alert" in page.text] == []
        assert any(HOSTILE in page.said for page in pages.values())

    @pytest.mark.fault("dashboard-masks-nothing")
    def test_stored_values_are_masked(self, looker: Visitor, opened: Open) -> None:
        """
        A result and kept arguments are shown to admins only, and only if the dashboard was started so.
        """
        for visitor in (looker, opened("--role", "admin").visitor(), opened("--show-values").visitor()):
            pages = every_page(visitor)
            assert [path for path, page in pages.items() if SECRET in page.text] == []
            assert any("Masked." in page.text for page in pages.values())

    def test_admins_see_values_where_that_is_allowed(self, opened: Open) -> None:
        """
        The other half of the promise, without which masking would prove nothing.
        """
        pages = every_page(opened("--role", "admin", "--show-values").visitor())

        assert any(SECRET in page.text for path, page in pages.items() if path.startswith("/records/"))
        assert any(SECRET in page.text for path, page in pages.items() if path.startswith("/letters/"))

    def test_a_page_that_there_is_not(self, looker: Visitor) -> None:
        """
        An unknown address, record or letter is a page that says so.
        """
        for path in (
            "/nothing",
            f"/records/{'0' * 64}",
            "/records/xyz",
            f"/letters/{'0' * 64}",
            "/plans/zz",
            "/run?id=x",
        ):
            assert looker.get(path).status == 404, path

    def test_a_wrong_search_is_told(self, looker: Visitor) -> None:
        """
        What cannot be searched for is refused with words, not with a trace.
        """
        for query in ("digest=xyz", "key=a", "state=odd", "after=zz", "since=yesterday"):
            refused = looker.get(f"/records?{query}")
            assert (refused.status, "Traceback" in refused.text) == (400, False), query


class TestActing:
    @pytest.mark.fault("dashboard-takes-forms-without-their-token")
    def test_a_form_without_its_sessions_token_changes_nothing(self, store: str, opened: Open) -> None:
        """
        Whoever makes a logged-in browser send a form does not know the token.
        """
        visitor = opened().visitor()
        digest = first_doubt(visitor)
        before = state_of(store, digest)
        form = {"answer": "did-not", "fence": before[1]}

        for csrf in ("", "0" * 64):
            assert visitor.post(f"/doubt/{digest}/decide", {**form, "csrf": csrf}).status == 403

        assert state_of(store, digest) == before
        assert visitor.post(f"/doubt/{digest}/decide", form).status == 303

    @pytest.mark.fault("dashboard-takes-forms-from-anywhere")
    def test_a_form_from_another_site_changes_nothing(self, store: str, opened: Open) -> None:
        """
        Even with the token: the browser says where a form comes from, and no page can make it lie.
        """
        visitor = opened().visitor()
        digest = first_doubt(visitor)
        before = state_of(store, digest)
        form = {"answer": "did-not", "fence": before[1]}

        for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"}):
            assert visitor.post(f"/doubt/{digest}/decide", form, **headers).status == 403

        assert state_of(store, digest) == before

    @pytest.mark.fault("dashboard-asks-for-no-role")
    def test_who_may_only_look_decides_nothing(self, store: str, opened: Open) -> None:
        """
        The role is asked at every action, whatever the page shows; and the page shows no form.
        """
        visitor = opened("--role", "view").visitor()
        digest, letter = first_doubt(visitor), visitor.get("/letters").links(r"/letters/[0-9a-f]{64}")[0]
        before, kept = state_of(store, digest), state_of(store, letter.removeprefix("/letters/"))

        assert visitor.post(f"/doubt/{digest}/decide", {"answer": "did-not", "fence": before[1]}).status == 403
        assert visitor.post(f"{letter}/discard").status == 403
        assert visitor.post("/outbox/discard", {"id": "partner-1"}).status == 403

        assert (state_of(store, digest), state_of(store, letter.removeprefix("/letters/"))) == (before, kept)
        assert "It happened…" not in visitor.get(f"/doubt/{digest}").text
        assert "partner-1" in visitor.get("/outbox").text

    def test_a_form_that_is_too_long_is_refused(self, opened: Open) -> None:
        """
        A stranger can make the process hold four kilobytes; somebody who is logged in, sixty-four.
        """
        command = opened()

        assert Visitor(command.address).post("/login", {"token": "x" * 5_000}).status == 400
        assert command.visitor().post("/doubt/probe", {"x": "x" * 70_000}).status == 400
