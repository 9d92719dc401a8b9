"""Tokens: made once, kept as a digest, rotated without losing the scope, refused without a word of why."""

from __future__ import annotations

import ast
import inspect
import re
import threading
from typing import Any

import pytest
from access_support import PEPPER, World
from hypothesis import given
from hypothesis import strategies as st

from onceward import ConfigurationError
from onceward.errors import Forbidden, IllegalMove, RateLimitError, TokenInvalid
from onceward.protocol.token_format import PATTERN, SECRET_BYTES, TOKEN_CHARACTERS, parse_token
from onceward.service.access import FloodControl, Role, bearer_token, peppers, token_verifier
from onceward.service.access.issued_token import issue_token
from onceward.service.access.peppers import Peppers
from onceward.service.access.token_table import TOUCH_US
from onceward.testing.clock import StillEnvironment

pytestmark = pytest.mark.dose(1, of=("kind", "colour"))

WORDS = str(TokenInvalid())


def made(access: Any, tenant: str = "acme", **options: Any) -> Any:
    """A new token."""
    new = access.create_token(tenant, **options)
    assert new is not None
    return new


class TestTheText:
    """What a token looks like."""

    @given(seed=st.text(), environment=st.sampled_from(["live", "test"]))
    def test_a_token_is_read_as_it_was_made(self, seed: str, environment: str) -> None:
        """
        Its environment and id come back, and it looks as scanners expect.
        """
        issued = issue_token(environment, StillEnvironment(seed=seed).random)
        presented = parse_token(issued.text)

        assert (environment, issued.id, issued.body) == (presented.environment, presented.id, presented.body)
        assert re.fullmatch(PATTERN, issued.text)
        assert len(issued.text) == TOKEN_CHARACTERS

    def test_the_secret_has_more_than_128_bits(self) -> None:
        """
        And two tokens share neither secret nor id.
        """
        random = StillEnvironment().random
        texts = {issue_token("live", random).text for _ in range(100)}

        assert SECRET_BYTES * 8 >= 128
        assert 100 == len({text[8:20] for text in texts}) == len({text[21:] for text in texts})

    @given(seed=st.text(max_size=5), at=st.integers(0, TOKEN_CHARACTERS - 1), other=st.characters())
    def test_a_wrong_character_is_told_without_a_lookup(self, seed: str, at: int, other: str) -> None:
        """
        Anywhere in it: the shape or the checksum does not fit, and what was typed is not repeated.
        """
        text = issue_token("live", StillEnvironment(seed=seed).random).text
        wrong = text[:at] + other + text[at + 1 :]

        if wrong == text:
            assert parse_token(wrong)
        else:
            with pytest.raises(TokenInvalid, match=r"not a token|checksum") as refused:
                parse_token(wrong)
            assert wrong[21:54] not in str(refused.value)

    @pytest.mark.parametrize(
        "change",
        [
            str.upper,
            lambda text: text + "\n",
            lambda text: " " + text,
            lambda text: text[:-1],
            lambda _: "",
            lambda _: None,
        ],
    )
    def test_what_is_no_token_is_refused(self, change: Any) -> None:
        """
        A line end, a blank, half of one, nothing.
        """
        with pytest.raises(TokenInvalid):
            parse_token(change(issue_token("live", StillEnvironment().random).text))

    def test_a_secret_is_in_no_repr(self) -> None:
        """
        What is printed by accident shows the id and no more.
        """
        issued = issue_token("live", StillEnvironment().random)

        assert issued.id in repr(issued)
        assert [one for one in (issued, parse_token(issued.text)) if issued.text[21:30] in repr(one)] == []
        assert "secret" not in repr(Peppers(["secret" * 8]))


class TestBearer:
    """The token in an authorization."""

    @pytest.mark.parametrize("value", ["Bearer ow_x", "bearer ow_x", "BEARER  ow_x", "Bearer   ow_x"])
    def test_the_schemes_case_and_blanks_do_not_matter(self, value: str) -> None:
        """
        As HTTP has it.
        """
        assert bearer_token([value]) == "ow_x"

    def test_nothing_is_nothing(self) -> None:
        """
        An anonymous call is not a wrong one.
        """
        assert None is bearer_token([])

    @pytest.mark.parametrize(
        "values", [["Bearer a", "Bearer b"], ["Bearer a", "Bearer a"], ["Basic a"], ["Bearer"], [""], ["Bearer\ta"]]
    )
    def test_an_odd_authorization_is_refused(self, values: list[str]) -> None:
        """
        Two of them, another scheme, none at all.
        """
        with pytest.raises(TokenInvalid):
            bearer_token(values)

    @pytest.mark.parametrize("value", ["Bearer {}\n", "Bearer {} x", "Bearer {},{}", "Bearer x{}"])
    def test_what_follows_or_precedes_is_not_cut_off(self, value: str) -> None:
        """
        It is handed on as it came, and is no token then.
        """
        text = issue_token("live", StillEnvironment().random).text

        with pytest.raises(TokenInvalid):
            parse_token(bearer_token([value.replace("{}", text)]) or "")

    def test_blanks_at_the_end_of_the_header_are_not_its_value(self) -> None:
        """
        RFC 9110, 5.5: one parser has cut them off, another leaves them to us; the answer is the same.
        """
        assert bearer_token(["Bearer abc \t "]) == "abc"


class TestAuthentication:
    """Who is calling."""

    @pytest.mark.requirement("A39")
    def test_a_token_names_its_caller(self, access: Any, acme: str) -> None:
        """
        Tenant, environment, role, databases, and the id: never the secret.
        """
        new = made(access, environment="test", role="read", databases=["shop", "logs", "shop"])

        caller = access.authenticate(new.issued.text)

        assert (acme, "test", Role.READ, ("logs", "shop")) == caller[2:6]
        assert (new.issued.id, new.issued.id) == (caller.token, caller.family)
        assert new.issued.text[21:40] not in repr(caller) + repr(new.view)

    @pytest.mark.requirement("A39")
    def test_the_secret_is_not_stored(self, access: Any, acme: str, world: World) -> None:
        """
        A row has the id and a digest; the digest is not that of the secret without the pepper.
        """
        new = made(access)
        [(id, pepper, digest)] = world.rows("SELECT id, pepper, digest FROM onceward_tokens")

        assert new.issued.id == id
        assert Peppers([PEPPER]).digest(b"token", new.issued.body) == bytes(digest)
        assert Peppers(["none"]).digest(b"token", new.issued.body) != bytes(digest)
        assert Peppers([PEPPER]).current == pepper

    def test_every_invalid_token_gets_the_same_answer(self, access: Any, acme: str, world: World) -> None:
        """
        Unknown, revoked, expired, another's secret under a known id, the other environment: the same words.
        """
        tokens = {name: made(access, expires=3600 if name == "expired" else None) for name in ("revoked", "expired")}
        known, other = made(access), made(access)
        access.revoke_token(tokens["revoked"].issued.id)
        world.pass_time(3600)
        unknown = issue_token("live", StillEnvironment(seed="nobody").random).text
        from onceward.protocol.token_format import checksum

        def forged(body: str) -> str:
            return body + checksum(body)

        presented = [
            unknown,
            tokens["revoked"].issued.text,
            tokens["expired"].issued.text,
            forged(known.issued.text[:20] + "_" + other.issued.text[21:54]),
            forged(known.issued.text[:-6].replace("ow_live", "ow_test")),
        ]

        answers = []
        for text in presented:
            with pytest.raises(TokenInvalid) as refused:
                access.authenticate(text)
            answers.append(str(refused.value))
        assert answers == [WORDS] * 5
        assert access.authenticate(known.issued.text)

    def test_a_digest_that_was_cut_off_fits_nothing(self, access: Any, acme: str, world: World) -> None:
        """
        Whoever can shorten what is stored gains no token by it.
        """
        new = made(access)
        cut = "substr(digest, 1, 4)"
        world.rows(f"UPDATE onceward_tokens SET digest = {cut}")

        with pytest.raises(TokenInvalid):
            access.authenticate(new.issued.text)
        assert world.rows("SELECT length(digest) FROM onceward_tokens") == [(4,)]

    def test_a_digest_of_another_row_fits_nothing(self, access: Any, acme: str, world: World) -> None:
        """
        Whoever can copy digests between rows gains no rights by it: the id is part of what is hashed.
        """
        low, high = made(access, role="read"), made(access, role="admin")
        other = f"(SELECT digest FROM onceward_tokens WHERE id = '{low.issued.id}')"
        world.rows(f"UPDATE onceward_tokens SET digest = {other} WHERE id = '{high.issued.id}'")

        with pytest.raises(TokenInvalid):
            access.authenticate(high.issued.text)

    def test_a_burst_asks_the_database_once(self, blocking: Any, world: World) -> None:
        """
        For half a second after; with another secret it is refused all the same.
        """
        blocking.create_tenant("acme")
        new, asked = made(blocking), []
        driver = blocking._database.driver
        look = driver.look
        driver.look = lambda steps: asked.append(1) or look(steps)

        for _ in range(1000):
            blocking.authenticate(new.issued.text)
        world.environment.advance(0.499)
        blocking.authenticate(new.issued.text)
        assert len(asked) == 1
        world.environment.advance(0.001)
        blocking.authenticate(new.issued.text)
        assert len(asked) == 2

    def test_a_revocation_is_seen_at_once_here_and_within_a_second_elsewhere(self, world: World, colour: str) -> None:
        """
        Another process may go by what it remembers, and for less than a second.
        """
        here, there = world.open(colour), world.open()
        here.create_tenant("acme")
        new = made(here)
        assert here.authenticate(new.issued.text) == there.authenticate(new.issued.text)

        ended = here.revoke_token(new.issued.id)

        assert ended.state == "revoked"
        with pytest.raises(TokenInvalid):
            here.authenticate(new.issued.text)
        assert there.authenticate(new.issued.text)  # The negative control: without the bound this would go on.
        world.environment.advance(token_verifier.REMEMBERED_SECONDS)
        with pytest.raises(TokenInvalid):
            there.authenticate(new.issued.text)
        assert token_verifier.REMEMBERED_SECONDS < 1
        here.close()
        there.close()

    def test_a_remembered_token_expires_on_time(self, access: Any, acme: str, world: World) -> None:
        """
        Also when it was believed a moment before.
        """
        new = made(access, expires=0.4)
        if world.kind == "postgres":
            world.rows("UPDATE onceward_tokens SET expires_at = expires_at + 60000000")
            world.pass_time(60)
        assert access.authenticate(new.issued.text)

        world.environment.advance(0.4)

        with pytest.raises(TokenInvalid):
            access.authenticate(new.issued.text)

    def test_the_memory_is_bounded(self, blocking: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        As many tokens as a limit says; the oldest go first.
        """
        monkeypatch.setattr(token_verifier, "REMEMBERED_MAX", 3)
        blocking.create_tenant("acme")

        for new in [made(blocking) for _ in range(5)]:
            blocking.authenticate(new.issued.text)

        assert len(blocking._flows.verifier._memory) == 3

    def test_last_used_is_noted_by_the_hour(self, access: Any, acme: str, world: World) -> None:
        """
        So that reading costs no write.
        """
        new = made(access)
        seen = []
        for _ in range(3):
            access.authenticate(new.issued.text)
            seen.append(access.token(new.issued.id).last_used_at)
            world.pass_time(TOUCH_US / 1_000_000 / 2)

        assert seen[0] is not None
        if world.kind == "sqlite":
            assert [one - seen[0] for one in seen] == [0, 0, TOUCH_US]
        else:  # There, what was noted has been moved into the past.
            assert [round((one - seen[0]) / (TOUCH_US / 2)) for one in seen] == [0, -1, 0]


class TestComingIn:
    """Authentication, and flood control for those whom it turned away."""

    @pytest.mark.requirement("A35")
    def test_strangers_are_slowed_and_callers_are_not(self, access: Any, acme: str) -> None:
        """
        From one address: after the burst, strangers are told when to come again; a valid token goes through, a thousand
        times.
        """
        text = made(access).issued.text
        flood = FloodControl(lambda: 0.0, burst=3, per_second=0.1)
        strangers: list[list[str]] = [[], ["Bearer ow_live_typo"], [f"Bearer {text}x"], [], ["Basic x"], []]

        ended = []
        for values in strangers:
            with pytest.raises((TokenInvalid, RateLimitError)) as refused:
                access.enter(flood, values, "192.0.2.1")
            ended.append((refused.value.code, refused.value.retry_after_seconds))

        assert ended == [("token_invalid", None)] * 3 + [("rate_limited", 10)] * 3
        for _ in range(1000):
            assert acme == access.enter(flood, [f"bearer {text}"], "192.0.2.1").tenant
        with pytest.raises(TokenInvalid):
            access.enter(flood, [], "192.0.2.2")

    def test_a_refusal_for_a_flood_tells_nothing_of_the_token(self, blocking: Any) -> None:
        """
        Neither in its words nor in what it was raised from.
        """
        flood = FloodControl(lambda: 0.0, burst=1, per_second=1)
        text = issue_token("live", StillEnvironment(seed="nobody").random).text
        with pytest.raises(TokenInvalid):
            blocking.enter(flood, [f"Bearer {text}"], "192.0.2.1")

        with pytest.raises(RateLimitError) as refused:
            blocking.enter(flood, [f"Bearer {text}"], "192.0.2.1")

        assert (refused.value.__cause__, refused.value.__context__) == (None, None)
        assert text[8:20] not in str(refused.value)


class TestRights:
    """What a caller may do."""

    @pytest.mark.requirement("C54")
    def test_a_test_token_is_refused_on_a_live_resource(self, access: Any, acme: str) -> None:
        """
        And a live one on a test resource; typed, before anything is looked up.
        """
        for mine, other in (("test", "live"), ("live", "test")):
            caller = access.authenticate(made(access, environment=mine).issued.text)
            caller.require(environment=mine)
            with pytest.raises(Forbidden, match=f"{mine} token, and the resource is {other}"):
                caller.require(environment=other)

    def test_a_role_covers_those_below_it(self, access: Any, acme: str) -> None:
        """
        Reading, writing, administering.
        """
        allowed = {}
        for role in Role:
            caller = access.authenticate(made(access, role=role).issued.text)
            allowed[role.value] = []
            for wanted in Role:
                try:
                    caller.require(role=wanted)
                except Forbidden:
                    continue
                allowed[role.value].append(wanted.value)

        assert allowed == {"read": ["read"], "write": ["read", "write"], "admin": ["read", "write", "admin"]}

    def test_a_list_of_databases_is_a_limit(self, access: Any, acme: str) -> None:
        """
        Without one, all of the tenant's; another tenant's never.
        """
        some = access.authenticate(made(access, databases=["shop"]).issued.text)
        every = access.authenticate(made(access).issued.text)

        some.require(database="shop", tenant=acme)
        every.require(database="logs", tenant=acme)
        with pytest.raises(Forbidden):
            some.require(database="logs")
        with pytest.raises(Forbidden):
            every.require(tenant="acme2")

    @pytest.mark.parametrize(
        "options",
        [
            {"environment": "prod"},
            {"role": "root"},
            {"databases": []},
            {"databases": "shop"},
            {"databases": ["a b"]},
            {"expires": 0},
            {"expires": -1},
            {"expires": float("nan")},
        ],
    )
    def test_what_cannot_be_a_token_is_refused(self, blocking: Any, world: World, options: dict[str, Any]) -> None:
        """
        And nothing is written.
        """
        blocking.create_tenant("acme")

        with pytest.raises(ConfigurationError):
            blocking.create_token("acme", **options)
        assert world.rows("SELECT id FROM onceward_tokens") == []

    def test_a_token_needs_a_tenant(self, access: Any) -> None:
        """
        One that is there.
        """
        assert None is access.create_token("nobody")


class TestScope:
    """Whose keys they are."""

    @pytest.mark.requirement("A28")
    def test_by_tenant_or_by_token(self, world: World, blocking: Any) -> None:
        """
        Two tokens of one tenant share their keys; with scope_by="token" each has its own, and a rotation keeps them.
        """
        blocking.create_tenant("acme")
        by_token = world.open(scope_by="token")
        first, second = made(blocking), made(blocking)
        rotated = blocking.rotate_token(first.issued.id)

        def scopes(access: Any) -> list[str]:
            return [access.authenticate(one.issued.text).scope_for("db1") for one in (first, second, rotated)]

        assert scopes(blocking) == ["live:acme:db:db1"] * 3
        one, two, three = scopes(by_token)
        assert one == three == f"live:acme:token:{first.issued.id}:db:db1"
        assert two == f"live:acme:token:{second.issued.id}:db:db1"
        by_token.close()

    @pytest.mark.requirement("A28")
    @pytest.mark.parametrize("scope_by", ["tenant", "token"])
    def test_another_bearer_learns_nothing_of_a_plan(self, world: World, scope_by: str) -> None:
        """
        The same plan and step under another tenant's token (or, by token, under any other token) runs by itself.
        """
        from onceward import Gate

        access = world.open(scope_by=scope_by)
        for name in ("acme", "other"):
            access.create_tenant(name)
        mine = access.authenticate(made(access).issued.text)
        theirs = access.authenticate(made(access, "other" if scope_by == "tenant" else "acme").issued.text)
        answers = []
        for caller in (mine, theirs, mine):
            with Gate(world.url, scope=caller.scope) as gate:
                step = gate.plan("leaked").call("step-1", lambda caller=caller: caller.token)
                answers.append((step.value, step.replayed))

        assert [(mine.token, False), (theirs.token, False), (mine.token, True)] == answers
        access.close()

    def test_there_is_no_other_way(self, world: World) -> None:
        """
        A misspelt choice is refused.
        """
        with pytest.raises(ConfigurationError, match="tenant, token"):
            world.open(scope_by="user")


class TestRotation:
    """A new secret, the same scope."""

    def test_a_retry_across_a_rotation_replays(self, access: Any, acme: str, world: World) -> None:
        """
        Sent first with the old token and again with the new one, an operation runs once.
        """
        from onceward import Gate

        old = made(access, role="admin", databases=["shop"])
        new = access.rotate_token(old.issued.id)
        ran = []
        for text in (old.issued.text, new.issued.text):
            with Gate(world.url, scope=access.authenticate(text).scope) as gate:
                gate.run("charge:order-17", lambda: ran.append(1))

        assert ran == [1]
        assert access.authenticate(old.issued.text)[1:] == access.authenticate(new.issued.text)[1:]

    def test_the_old_token_lives_on_for_the_overlap(self, access: Any, acme: str, world: World) -> None:
        """
        And no longer.
        """
        old = made(access)
        new = access.rotate_token(old.issued.id, overlap=60)

        assert access.token(old.issued.id).state == "ending"
        assert new.issued.id == access.token(old.issued.id).successor
        world.pass_time(59)
        assert access.authenticate(old.issued.text)
        world.pass_time(1)
        with pytest.raises(TokenInvalid):
            access.authenticate(old.issued.text)
        assert access.authenticate(new.issued.text)

    def test_or_ends_at_once(self, access: Any, acme: str) -> None:
        """
        With no overlap, also where it was believed a moment ago.
        """
        old = made(access)
        access.authenticate(old.issued.text)

        access.rotate_token(old.issued.id, overlap=0)

        with pytest.raises(TokenInvalid):
            access.authenticate(old.issued.text)

    def test_an_overlap_lengthens_no_life(self, access: Any, acme: str, world: World) -> None:
        """
        A token that was to end sooner ends then; its successor lives as long as it was to live itself.
        """
        old = made(access, expires=100)
        world.pass_time(90)
        before = access.token(old.issued.id)

        new = access.rotate_token(old.issued.id, overlap=3600)

        assert before.expires_at == access.token(old.issued.id).expires_at
        assert new.view.expires_at - new.view.created_at == 100_000_000

    def test_only_an_active_token_is_rotated(self, access: Any, acme: str, world: World) -> None:
        """
        Not one that has a successor, not a revoked or expired one; nothing is made then.
        """
        rotated, revoked, expired = made(access), made(access), made(access, expires=10)
        successor = access.rotate_token(rotated.issued.id)
        access.revoke_token(revoked.issued.id)
        world.pass_time(10)

        for old, words in ((rotated, successor.issued.id), (revoked, "is revoked"), (expired, "is expired")):
            with pytest.raises(IllegalMove, match=words):
                access.rotate_token(old.issued.id)
        assert len(access.tokens()) == 4
        assert None is access.rotate_token("000000000000")

    def test_of_several_rotations_at_once_one_makes_a_successor(self, world: World) -> None:
        """
        The others are told whose turn it was.
        """
        shells = [world.open() for _ in range(4)]
        shells[0].create_tenant("acme")
        old = made(shells[0])
        ended: list[str] = []

        def rotate(shell: Any) -> None:
            try:
                ended.append(shell.rotate_token(old.issued.id).issued.id)
            except IllegalMove as error:
                ended.append(str(error))

        crowd = [threading.Thread(target=rotate, args=(shell,)) for shell in shells]
        for one in crowd:
            one.start()
        for one in crowd:
            one.join()

        successor = shells[0].token(old.issued.id).successor
        assert [successor] == [one for one in ended if len(one) == 12]
        assert sum(successor in one for one in ended if len(one) > 12) == 3
        assert len(shells[0].tokens()) == 2
        for shell in shells:
            shell.close()

    def test_a_whole_token_is_no_id(self, blocking: Any) -> None:
        """
        It belongs into no command line; the error does not repeat it.
        """
        blocking.create_tenant("acme")
        new = made(blocking)

        for ask in (blocking.token, blocking.revoke_token, blocking.rotate_token):
            with pytest.raises(ConfigurationError) as refused:
                ask(new.issued.text)
            assert new.issued.text[21:] not in str(refused.value)


class TestLists:
    """What operators see."""

    def test_tokens_by_tenant_and_page_by_page(self, access: Any, acme: str) -> None:
        """
        In order of id; digests are not part of it.
        """
        access.create_tenant("other")
        ids = sorted(made(access).issued.id for _ in range(5))
        made(access, "other")

        first = access.tokens(acme, limit=3)
        rest = access.tokens(acme, after=first[-1].id, limit=3)

        assert ids == [one.id for one in (*first, *rest)]
        assert len(access.tokens()) == 6
        assert [name for name in first[0]._fields if name in ("digest", "pepper")] == []


class TestComparing:
    """No digest is compared in a way that ends early."""

    def test_the_digest_is_compared_in_constant_time(self) -> None:
        """
        By `hmac.compare_digest`, on bytes, in one place; nothing else that judges a token compares digests.
        """
        tree = ast.parse(inspect.getsource(peppers.Peppers.fits).replace("\n    ", "\n").strip())
        calls = [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
        assert "hmac.compare_digest" in calls

        assert early_exits(inspect.getsource(token_verifier)) + early_exits(inspect.getsource(peppers)) == []

    def test_an_early_exit_is_found(self) -> None:
        """
        The check itself: a digest under == or in a tuple comparison is an offence.
        """
        assert len(early_exits("if row.digest == made: pass")) == 1
        assert len(early_exits("ok = digest != other")) == 1
        assert early_exits("ok = compare_digest(digest, other)") == []

    def test_an_unknown_token_costs_as_much_work(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        One digest is made and one comparison, whether there is such a token or not, and whichever pepper it has.
        """
        worked: list[str] = []
        fits = Peppers.fits
        monkeypatch.setattr(Peppers, "fits", lambda *given: worked.append("fits") or fits(*given))
        verifier = token_verifier.TokenVerifier(Peppers([PEPPER]), StillEnvironment())
        presented = parse_token(issue_token("live", StillEnvironment().random).text)
        row = token_verifier._DECOY._replace(pepper="of nobody")

        for found in (None, row):
            with pytest.raises(TokenInvalid):
                verifier.judge(presented, found, 0.0)

        assert worked == ["fits", "fits"]


def early_exits(source: str) -> list[str]:
    """Comparisons of digests by == or !=."""
    return [
        ast.unparse(node)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Compare)
        and any(isinstance(operator, ast.Eq | ast.NotEq) for operator in node.ops)
        and "digest" in ast.unparse(node)
    ]
