"""Where a webhook goes: to the addresses that were checked, under the name that was asked for, and nowhere else."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from delivery_support import HERE, SECRET, here, message

from onceward.errors import TargetRefused
from onceward.messaging.outbox.delivery import HttpEndpoint
from onceward.messaging.outbox.delivery.deadline_socket import system_addresses
from onceward.messaging.outbox.message import Delivered, DeliveryFailed, DeliveryOutcome
from servers.certificates import Authority
from servers.receiver import Receiver, answer

OK = answer(200)
NOT_PUBLIC = "the URL's host leads to an address that is not public; nothing was sent"


def public(port: int, addresses: list[str], **options: Any) -> HttpEndpoint:
    """An endpoint as a stranger would name it: a public name, whatever that leads to."""
    return HttpEndpoint(
        f"http://hooks.example:{port}/", secrets=[SECRET], allow_http=True, ports=[port],
        resolver=lambda _host, _port: addresses, **options,
    )  # fmt: skip


class TestAddresses:
    """Every address of the name is looked at, before anything is sent."""

    @pytest.mark.parametrize(
        "address",
        ["127.0.0.1", "127.8.8.8", "0.0.0.0", "10.0.0.1", "169.254.169.254", "100.64.0.1", "192.168.0.1", "::1", "::",
         "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "64:ff9b:1::1", "2002:7f00:1::", "fe80::1",
         "fe80::1%lo", "fd00:ec2::254", "::127.0.0.1", "224.0.0.1", "255.255.255.255", "no address", ""],
    )  # fmt: skip
    def test_a_name_that_leads_inside_is_not_called(self, address: str) -> None:
        """
        Loopback, metadata services and private networks, also wrapped in IPv6. A listener is there, and hears nothing.
        """
        with Receiver(OK) as receiver:
            assert DeliveryFailed(NOT_PUBLIC) == public(receiver.port, [address]).deliver(message())

        assert receiver.connections == 0

    def test_one_address_inside_is_one_too_many(self) -> None:
        """
        Whichever place it has in the list.
        """
        with Receiver(OK) as receiver:
            for addresses in (["127.0.0.1", "93.184.215.14"], ["93.184.215.14", "127.0.0.1"]):
                assert DeliveryFailed(NOT_PUBLIC) == public(receiver.port, addresses).deliver(message())

        assert receiver.connections == 0

    def test_without_the_check_the_listener_would_hear_it(self) -> None:
        """
        The control of the tests above: the same endpoint, with this network spoken.
        """
        with Receiver(OK) as receiver:
            assert Delivered("200") == public(receiver.port, ["127.0.0.1"], allow_private=HERE).deliver(message())

        assert receiver.connections == 1

    @pytest.mark.parametrize("spelling", ["127.1", "0x7f.1", "2130706433", "0177.0.0.1", "127.0.0.1", "0", "localhost"])
    def test_an_odd_spelling_of_this_machine_is_seen_through(self, spelling: str) -> None:
        """
        Refused as a URL; where networks inside are spoken, it is what it means that counts: not one of those.
        """
        with pytest.raises(TargetRefused):
            HttpEndpoint(f"https://{spelling}/", secrets=[SECRET])
        with Receiver(OK) as receiver:
            endpoint = HttpEndpoint(
                f"http://{spelling}:{receiver.port}/", secrets=[SECRET], allow_http=True, allow_private=["10.0.0.0/8"]
            )
            assert DeliveryFailed(NOT_PUBLIC) == endpoint.deliver(message())

        assert receiver.connections == 0

    def test_a_spoken_network_does_not_speak_for_what_is_wrapped_around_it(self) -> None:
        """
        127.0.0.0/8 is spoken, and ::ffff:127.0.0.1 is not in it; nor is 0.0.0.0.
        """
        with Receiver(OK) as receiver:
            for address in ("::ffff:127.0.0.1", "64:ff9b::7f00:1", "0.0.0.0", "::1"):
                assert DeliveryFailed(NOT_PUBLIC) == public(receiver.port, [address], allow_private=HERE).deliver(
                    message()
                )

        assert receiver.connections == 0

    def test_a_bare_address_of_a_spoken_network_is_called(self) -> None:
        """
        By the system's own resolver, in IPv4 and IPv6.
        """
        with Receiver(OK) as receiver:
            url = f"http://127.0.0.1:{receiver.port}/"
            endpoint = HttpEndpoint(url, secrets=[SECRET], allow_http=True, allow_private=["127.0.0.1"])
            assert Delivered("200") == endpoint.deliver(message())
        if not socket.has_ipv6:
            return
        try:
            six = Receiver(OK, family=socket.AF_INET6)
        except OSError:
            return  # A machine without IPv6.
        with six as receiver:
            url = f"http://[::1]:{receiver.port}/"
            endpoint = HttpEndpoint(url, secrets=[SECRET], allow_http=True, allow_private=["::1"])
            assert Delivered("200") == endpoint.deliver(message())

        assert receiver.requests[0].headers["host"] == f"[::1]:{receiver.port}"

    def test_the_next_address_is_tried_if_one_takes_no_connection(self) -> None:
        """
        Nothing was sent to the first: it does not listen.
        """
        with Receiver(OK) as receiver:
            endpoint = here(receiver.port, resolver=lambda _host, _port: ["127.0.0.9", "127.0.0.1"])
            assert Delivered("200") == endpoint.deliver(message())


class TestRebinding:
    """A name that means something else a moment later."""

    def test_a_name_is_resolved_once_and_the_checked_address_is_called(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        The resolver changes its mind after the first answer; nobody asks it again, also not the system's.
        """
        asked: list[str] = []

        def fickle(host: str, _port: int) -> list[str]:
            asked.append(host)
            return ["127.0.0.1"] if len(asked) == 1 else ["127.0.0.66"]

        def systems(*_: Any, **__: Any) -> Any:
            raise AssertionError("the name was resolved a second time")

        with Receiver(OK) as receiver:
            monkeypatch.setattr(socket, "getaddrinfo", systems)
            assert Delivered("200") == here(receiver.port, resolver=fickle).deliver(message())

        assert asked == ["hooks.example"]
        assert receiver.requests[0].headers["host"] == f"hooks.example:{receiver.port}"

    def test_each_try_is_checked_anew(self) -> None:
        """
        Good at first, inside at the second try: the second is not sent.
        """
        answers = iter([["127.0.0.1"], ["169.254.169.254"]])
        with Receiver(OK) as receiver:
            endpoint = here(receiver.port, resolver=lambda _host, _port: next(answers))
            assert Delivered("200") == endpoint.deliver(message())
            assert DeliveryFailed(NOT_PUBLIC) == endpoint.deliver(message())

        assert receiver.connections == 1


class TestNames:
    """Names that are not there, or not in time."""

    def test_a_name_that_is_not_known_fails(self) -> None:
        """
        It may be known tomorrow.
        """

        def nobody(_host: str, _port: int) -> list[str]:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

        assert DeliveryFailed("the receiver's name cannot be resolved") == here(9, resolver=nobody).deliver(message())
        none = here(9, resolver=lambda _host, _port: [])
        assert DeliveryFailed("the URL's host has no address; nothing was sent") == none.deliver(message())

    def test_a_resolver_that_fails_in_its_own_way_is_no_accident(self) -> None:
        """
        Whatever it raises, this try has failed.
        """

        def broken(_host: str, _port: int) -> list[str]:
            raise LookupError("canary")

        assert DeliveryFailed("the receiver's name cannot be resolved") == here(9, resolver=broken).deliver(message())

    def test_a_lookup_that_does_not_end_is_left_behind(self) -> None:
        """
        The system's resolver has no timeout that one could set; the try ends all the same.
        """
        release = threading.Event()

        def slow(_host: str, _port: int) -> list[str]:
            release.wait(60)
            return ["127.0.0.1"]

        try:
            outcome = here(9, resolver=slow, seconds=0.2).deliver(message())
        finally:
            release.set()

        assert DeliveryFailed("no address in time") == outcome

    def test_the_systems_resolver_says_what_odd_spellings_mean(self) -> None:
        """
        So that they can be checked.
        """
        assert system_addresses("127.1", 80) == ["127.0.0.1"]


class TestRedirects:
    """Not followed, wherever they lead."""

    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    def test_a_redirect_is_a_failure_with_advice(self, status: int) -> None:
        """
        Also to a place that could be called: the one that was checked is the one that is called.
        """
        with Receiver(OK) as elsewhere, Receiver(b"") as receiver:
            receiver.answer = answer(status, f"Location: http://127.0.0.1:{elsewhere.port}/")
            outcome = here(receiver.port).deliver(message())

        assert isinstance(outcome, DeliveryFailed)
        assert "redirects are not followed" in outcome.reason
        assert elsewhere.connections == 0


class TestProxies:
    """The environment's are not asked."""

    def test_a_proxy_in_the_environment_is_not_called(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        It would resolve the name again, inside.
        """
        with Receiver(OK) as proxy, Receiver(OK) as receiver:
            for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
                monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
            assert Delivered("200") == here(receiver.port).deliver(message())

        assert (proxy.connections, receiver.connections) == (0, 1)


def over_tls(authority: Authority, name: str, **options: Any) -> Callable[[], tuple[DeliveryOutcome, Receiver]]:
    """A delivery to hooks.example, by a server whose certificate has this name."""

    def run() -> tuple[DeliveryOutcome, Receiver]:
        lasts = options.pop("lasts", timedelta(days=1))
        with Receiver(OK, tls=authority.serving(name, lasts=lasts)) as receiver:
            endpoint = HttpEndpoint(
                f"https://hooks.example:{receiver.port}/", secrets=[SECRET], allow_private=HERE,
                resolver=lambda _host, _port: ["127.0.0.1"], **options,
            )  # fmt: skip
            return endpoint.deliver(message()), receiver

    return run


class TestTls:
    """The connection goes to an address; the certificate is the name's."""

    def test_name_and_certificate_are_those_of_the_url(self, authority: Authority) -> None:
        """
        Asked for by name (SNI), checked by name, with the name as host.
        """
        outcome, receiver = over_tls(authority, "hooks.example", tls=authority.believing())()

        assert Delivered("200") == outcome
        assert receiver.requests[0].server_name == "hooks.example"
        assert receiver.requests[0].headers["host"] == f"hooks.example:{receiver.port}"

    @pytest.mark.parametrize("name", ["other.example", "127.0.0.1", "example"])
    def test_a_certificate_of_another_name_is_refused(self, authority: Authority, name: str) -> None:
        """
        Also one for the very address that is called.
        """
        outcome, receiver = over_tls(authority, name, tls=authority.believing())()

        assert isinstance(outcome, DeliveryFailed)
        assert "certificate is not valid" in outcome.reason
        assert receiver.requests == []

    def test_a_certificate_that_has_run_out_is_refused(self, authority: Authority) -> None:
        """
        Failed: it will be renewed.
        """
        options = {"lasts": timedelta(days=-1), "tls": authority.believing()}
        outcome, receiver = over_tls(authority, "hooks.example", **options)()

        assert isinstance(outcome, DeliveryFailed)
        assert "expired" in outcome.reason
        assert receiver.requests == []

    def test_an_authority_that_nobody_knows_is_not_believed(self, authority: Authority) -> None:
        """
        The default believes the system's.
        """
        outcome, receiver = over_tls(authority, "hooks.example")()

        assert isinstance(outcome, DeliveryFailed)
        assert "certificate is not valid" in outcome.reason
        assert receiver.requests == []

    def test_a_server_without_tls_is_not_spoken_to(self, authority: Authority) -> None:
        """
        An https URL is never tried in the clear.
        """
        with Receiver(OK) as receiver:
            endpoint = HttpEndpoint(
                f"https://hooks.example:{receiver.port}/", secrets=[SECRET], allow_private=HERE,
                resolver=lambda _host, _port: ["127.0.0.1"], tls=authority.believing(), seconds=5,
            )  # fmt: skip
            outcome = endpoint.deliver(message())

        assert isinstance(outcome, DeliveryFailed)
        assert all(b"invoice" not in request.body for request in receiver.requests)

    def test_old_versions_of_tls_are_not_spoken(self, authority: Authority) -> None:
        """
        1.2 is the least.
        """
        assert ssl.TLSVersion.TLSv1_2 <= authority.believing().minimum_version
