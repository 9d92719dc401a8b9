"""The middleware among others: background tasks, dependencies that commit late, and middlewares around and inside."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import pytest
from asgi_support import SCOPE, World
from asgi_support import request as request_bytes
from fastapi import BackgroundTasks, Depends, FastAPI
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route

from onceward.http.asgi import IdempotencyMiddleware


class TestBackgroundTasks:
    """What runs after the answer."""

    def app(self, world: World, *, fastapi: bool) -> Any:
        async def later() -> None:
            world.entered.set()
            await world._go.wait()
            world.count += 1

        if fastapi:
            app = FastAPI()

            async def charge(tasks: BackgroundTasks) -> dict[str, str]:
                tasks.add_task(later)
                return {"charge": "done"}

            charge.__annotations__["tasks"] = BackgroundTasks
            app.add_api_route("/charges", charge, methods=["POST"], status_code=201)
            return app

        async def endpoint(_: Request) -> Response:
            return JSONResponse({"charge": "done"}, 201, background=BackgroundTask(later))

        return Starlette(routes=[Route("/charges", endpoint, methods=["POST"])])

    @pytest.mark.parametrize("fastapi", [False, True])
    def test_by_default_the_answer_speaks_for_them(self, fastapi: bool, world: World) -> None:
        """
        It leaves when they have ended, because what commits after an answer cannot be told from them. They run once.
        """
        world.serve_app(self.app(world, fastapi=fastapi))
        first = world.posting()
        world.held()
        during = world.post()
        world.let_go()

        assert (during.status_code, during.json()["code"]) == (409, "in_flight")
        assert (first.result().status_code, world.count) == (201, 1)
        assert world.post().headers["idempotency-replayed"] == "true"
        assert world.count == 1

    @pytest.mark.parametrize("fastapi", [False, True])
    def test_answer_first_does_not_wait_for_them(self, fastapi: bool, world: World) -> None:
        """
        The answer is stored, sent and replayed while they still run; they run once, to their end.
        """
        world.serve_app(self.app(world, fastapi=fastapi), answer_first=True)
        first = world.post()
        world.held()
        second = world.post()

        assert (first.status_code, world.state(), world.count) == (201, "settled", 0)
        assert (first.content, "true") == (second.content, second.headers["idempotency-replayed"])
        world.let_go()
        assert self.soon(lambda: world.count == 1)

    def test_what_they_raise_is_the_servers_to_report(self, world: World, caplog: pytest.LogCaptureFixture) -> None:
        """
        With answer_first, as without the middleware: the answer stands, and the log has the reason.
        """

        async def later() -> None:
            raise ValueError("no mail today")

        async def endpoint(_: Request) -> Response:
            return Response("done", background=BackgroundTask(later))

        world.serve_app(Starlette(routes=[Route("/charges", endpoint, methods=["POST"])]), answer_first=True)

        assert world.post().status_code == 200
        assert (world.state(), world.post().status_code) == ("settled", 200)
        assert self.soon(lambda: any("no mail today" in str(line.exc_info) for line in caplog.records))

    def test_a_handler_that_raises_before_its_answer_is_as_usual(self, world: World) -> None:
        """
        Also with answer_first.
        """

        async def endpoint(_: Request) -> Response:
            raise ValueError

        world.serve_app(Starlette(routes=[Route("/charges", endpoint, methods=["POST"])]), answer_first=True)

        assert [world.post().status_code for _ in range(2)] == [500, 409]
        assert world.state() == "in_doubt"

    @staticmethod
    def soon(holds: Callable[[], bool]) -> bool:
        for _ in range(1_000):
            if holds():
                return True
            threading.Event().wait(0.005)
        return False


class TestDependenciesThatCommitAfterTheAnswer:
    """FastAPI ends a dependency with `yield` when the response has been sent: there people commit."""

    def app(self, world: World, *, fails: bool) -> FastAPI:
        app = FastAPI()

        async def session() -> AsyncIterator[list[str]]:
            rows: list[str] = []
            yield rows
            if fails:
                raise RuntimeError("could not commit")
            world.committed = rows  # type: ignore[attr-defined]

        async def charge(rows: Any = Depends(session)) -> dict[str, int]:  # noqa: B008
            world.count += 1
            rows.append("charged")
            return {"charge": world.count}

        app.add_api_route("/charges", charge, methods=["POST"], status_code=201)
        return app

    def test_the_answer_leaves_when_it_has_committed(self, world: World) -> None:
        """
        Whoever has the 201 has the rows, and so has the record.
        """
        world.serve_app(self.app(world, fails=False))

        assert world.post().status_code == 201
        assert (world.committed, world.state()) == (["charged"], "settled")  # type: ignore[attr-defined]

    @pytest.mark.parametrize(("guarantee", "state", "runs"), [("blind", "in_doubt", 1), ("atomic", "released", 2)])
    def test_a_commit_that_fails_is_no_success(self, guarantee: str, state: str, runs: int, world: World) -> None:
        """
        Without the middleware the client would have had its 201 by then. Here it is told, and nothing false is stored.
        """
        world.serve_app(self.app(world, fails=True), guarantee=guarantee)
        first, second = world.post(), world.post()

        assert first.status_code == 500
        assert (409 if guarantee == "blind" else 500) == second.status_code
        assert (state, runs) == (world.state(), world.count)


class TestOtherMiddlewares:
    """Around it, and inside."""

    @pytest.mark.parametrize("place", ["around", "inside"])
    @pytest.mark.parametrize("streams", [False, True])
    def test_starlettes_base_middleware(self, place: str, streams: bool, world: World) -> None:
        """
        It wraps receive and send in tasks of its own; runs once, replays whole.
        """

        async def endpoint(request: Request) -> Response:
            world.count += 1
            body = await request.body()

            async def pieces() -> AsyncIterator[bytes]:
                for number in range(3):
                    await anyio.sleep(0)
                    yield body + str(number).encode()

            return StreamingResponse(pieces(), 201) if streams else Response(body, 201)

        class Adding(BaseHTTPMiddleware):
            async def dispatch(self, request: Request, call_next: Any) -> Response:
                response: Response = await call_next(request)
                response.headers["x-added"] = "yes"
                return response

        inner = Starlette(routes=[Route("/charges", endpoint, methods=["POST"])])
        options = {"gate": world.gate, "scope": SCOPE}
        if place == "around":
            world.stage.app = Adding(IdempotencyMiddleware(inner, **options))  # type: ignore[arg-type]
        else:
            world.stage.app = IdempotencyMiddleware(Adding(inner), **options)  # type: ignore[arg-type]
        first, second = world.post(), world.post()

        whole = b"".join(b'{"amount":1}' + str(number).encode() for number in range(3)) if streams else b'{"amount":1}'
        assert (201, whole) == (first.status_code, first.content) == (second.status_code, second.content)
        assert second.headers["idempotency-replayed"] == "true"
        assert first.headers["x-added"] == "yes"
        assert (place == "around") == ("x-added" in second.headers)
        assert world.count == 1

    def test_one_of_ours_inside_another_lets_the_request_through(self, world: World) -> None:
        """
        An app that is mounted in an app, each with the middleware: one operation, not two that wait for each other.
        """

        async def endpoint(request: Request) -> Response:
            world.count += 1
            return JSONResponse({"attempt": request.state.operation.attempt}, 201)

        inner = Starlette(routes=[Route("/charges", endpoint, methods=["POST"])])
        inner.add_middleware(IdempotencyMiddleware, gate=world.gate, scope=SCOPE, in_flight="wait")
        outer = Starlette(routes=[Mount("/api", inner)])
        outer.add_middleware(IdempotencyMiddleware, gate=world.gate, scope=SCOPE)
        world.stage.app = outer
        first, second = world.post("/api/charges"), world.post("/api/charges")

        assert (first.status_code, first.json()) == (201, {"attempt": 1})
        assert second.headers["idempotency-replayed"] == "true"
        assert (world.count, len(world.records())) == (1, 1)

    def test_the_exception_of_an_atomic_handler_keeps_its_chain(self, world: World) -> None:
        """
        Whoever reports errors outside sees what the handler raised, and why.
        """
        seen: list[BaseException] = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            try:
                raise KeyError("cause")
            except KeyError as cause:
                raise ValueError("effect") from cause

        world.serve_app(app, guarantee="atomic")
        gated = world.stage.app

        async def reporting(scope: Any, receive: Any, send: Any) -> None:
            try:
                await gated(scope, receive, send)
            except BaseException as error:
                seen.append(error)
                raise

        world.stage.app = reporting
        world.post()

        assert world.state() == "released"
        assert [type(seen[0]).__name__, type(seen[0].__cause__).__name__] == ["ValueError", "KeyError"]

    def test_what_a_gate_inside_the_handler_raises_is_the_handlers(self, world: World) -> None:
        """
        Another operation's refusal is not taken for this one's: it is an exception like any other.
        """

        async def endpoint(_: Request) -> Response:
            world.count += 1

            async def other() -> None:
                raise ValueError

            for _attempt in range(2):
                try:
                    await world.gate.run("inner", other)
                except ValueError:
                    continue
            return Response()

        world.serve_app(Starlette(routes=[Route("/charges", endpoint, methods=["POST"])]))

        assert (world.post().status_code, world.state()) == (500, "in_doubt")
        assert world.count == 1


class TestWithoutIt:
    """The negative controls: what the tests here and beside find is really there when the middleware is not."""

    def test_a_duplicate_runs_twice(self, world: World) -> None:
        """
        The handler, the server and the client are the same.
        """

        async def endpoint(_: Request) -> Response:
            world.count += 1
            return Response(status_code=201)

        world.stage.app = Starlette(routes=[Route("/charges", endpoint, methods=["POST"])])
        answers = [world.post() for _ in range(2)]

        assert ([one.status_code for one in answers], world.count) == ([201, 201], 2)
        assert not any("idempotency-replayed" in one.headers for one in answers)

    def test_a_commit_that_fails_is_a_201(self, world: World) -> None:
        """
        FastAPI has sent it by then.
        """
        world.stage.app = TestDependenciesThatCommitAfterTheAnswer().app(world, fails=True)

        assert world.post().status_code == 201

    def test_a_client_that_leaves_ends_the_stream(self, world: World) -> None:
        """
        Starlette stops the handler in the middle.
        """
        ended = threading.Event()

        async def endpoint(_: Request) -> Response:
            async def pieces() -> AsyncIterator[bytes]:
                try:
                    yield b"first"
                    world.entered.set()
                    await world._go.wait()
                    world.count += 1
                    yield b"second"
                finally:
                    ended.set()

            return StreamingResponse(pieces())

        world.stage.app = Starlette(routes=[Route("/charges", endpoint, methods=["POST"])])
        connection = world.raw(request_bytes())
        world.held()
        connection.close()

        assert ended.wait(10)
        assert world.count == 0
