"""The server's application: the page, and the views' dicts as JSON. Nothing here knows how they are built."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from torcheer import __version__
from torcheer.errors import LookupKeyError, TorcheerError
from torcheer.views import page
from torcheer.web import openapi
from torcheer.web.answers import RequestError, answer, number, paged, refusal
from torcheer.web.shelf import Shelf

LOOK_EVERY_S = 0.2  # how often a growing run is looked at while somebody watches
HEARTBEAT_S = 15  # an event at least this often, so that proxies keep the stream open
PAGE_COUNT = 1000
MOST_PER_PAGE = 100_000
MEDIA = {"page.js": "text/javascript", "worker.js": "text/javascript", "page.css": "text/css"}


class Activity:
    """When somebody last looked: an unwatched server ends by itself."""

    def __init__(self) -> None:
        self.num_streams = 0
        self.last = time.monotonic()

    def idle_s(self) -> float:
        return 0.0 if self.num_streams else time.monotonic() - self.last


class Explorer:
    """The answers, by route."""

    def __init__(self, shelf: Shelf, activity: Activity) -> None:
        self.shelf = shelf
        self.activity = activity

    async def page(self, _request: Request) -> Response:
        return Response(page.shell(), media_type="text/html")

    async def asset(self, request: Request) -> Response:
        name = request.url.path.lstrip("/")
        return Response(page.asset(name), media_type=MEDIA[name])

    async def listing(self, _request: Request) -> Response:
        return answer({"torcheer": __version__, "subjects": await run_in_threadpool(self._listing)})

    async def description(self, _request: Request) -> Response:
        return answer(openapi.DESCRIPTION)

    async def subject(self, request: Request) -> Response:
        subject = self.shelf[request.path_params["id"]]
        data = await run_in_threadpool(subject.data, dict(request.query_params))
        at = request.query_params.get("at")
        if at is not None:
            count = number(request.query_params, "count", PAGE_COUNT, 1, MOST_PER_PAGE)
            data = paged(data, at, number(request.query_params, "from", 0), count)
        return await run_in_threadpool(partial(answer, data))

    async def details(self, request: Request) -> Response:
        return await self._answered(request, self.shelf[request.path_params["id"]].details)

    async def figures(self, request: Request) -> Response:
        return await self._answered(request, self.shelf[request.path_params["id"]].figures)

    async def series(self, request: Request) -> Response:
        return await self._answered(request, self.shelf.run(request.path_params["id"]).series)

    async def scalars(self, request: Request) -> Response:
        return await self._answered(request, self.shelf.run(request.path_params["id"]).scalars)

    async def changes(self, request: Request) -> Response:
        return await self._answered(request, self.shelf.run(request.path_params["id"]).changes)

    async def at(self, request: Request) -> Response:
        return await self._answered(request, self.shelf.run(request.path_params["id"]).at)

    async def events(self, request: Request) -> Response:
        return StreamingResponse(self._events(request), media_type="text/event-stream")

    async def _answered(self, request: Request, part: Callable[[Mapping[str, str]], dict[str, Any]]) -> Response:
        options = dict(request.query_params)
        return await run_in_threadpool(lambda: answer(part(options)))

    def _listing(self) -> list[dict[str, Any]]:
        found = [(index, self.shelf[index]) for index in self.shelf.look()]
        return [
            {"id": index, "kind": subject.kind, "title": subject.title, "last_step": subject.last_step()}
            for index, subject in found
        ]

    async def _events(self, request: Request) -> AsyncIterator[str]:
        """Yield "new up to step N" for every run that has grown; the reader then asks for what it lacks."""
        self.activity.num_streams += 1
        told: dict[int, str] = {}
        silent_since = 0.0
        try:
            while not await request.is_disconnected():
                for index in await run_in_threadpool(self.shelf.look):
                    mark = await run_in_threadpool(self.shelf[index].mark)
                    if mark is not None and mark != told.get(index):
                        told[index] = mark
                        silent_since = time.monotonic()
                        grown = {"subject": index, "last_step": await run_in_threadpool(self.shelf[index].last_step)}
                        yield f"id: {grown['last_step']}\ndata: {json.dumps(grown)}\n\n"
                if time.monotonic() - silent_since > HEARTBEAT_S:
                    silent_since = time.monotonic()
                    yield ": still here\n\n"
                await asyncio.sleep(LOOK_EVERY_S)
        finally:
            self.activity.num_streams -= 1
            self.activity.last = time.monotonic()


async def refuse(request: Request, error: Exception) -> Response:
    """Turn errors into the one shape they have here."""
    if isinstance(error, HTTPException):
        text = f"There is nothing at {request.url.path}." if error.status_code == 404 else str(error.detail)
        return refusal(error.status_code, text)
    if isinstance(error, RequestError):
        return refusal(error.status, str(error))
    return refusal(404 if isinstance(error, LookupKeyError) else 422, str(error))


async def fail(_request: Request, error: Exception) -> Response:
    """Say that the fault is ours. Starlette raises the error again, so the log has it."""
    return refusal(500, f"{type(error).__name__}: {error}")


def application(shelf: Shelf, activity: Activity) -> Starlette:
    """Return the application that shows what is on a shelf."""
    explorer = Explorer(shelf, activity)
    return Starlette(
        routes=[
            Route("/", explorer.page),
            *(Route(f"/{name}", explorer.asset) for name in MEDIA),
            Route("/api", explorer.listing),
            Route("/api/openapi.json", explorer.description),
            Route("/api/events", explorer.events),
            Route("/api/subjects/{id:int}", explorer.subject),
            Route("/api/subjects/{id:int}/details", explorer.details),
            Route("/api/subjects/{id:int}/figures", explorer.figures),
            Route("/api/subjects/{id:int}/series", explorer.series),
            Route("/api/subjects/{id:int}/scalars", explorer.scalars),
            Route("/api/subjects/{id:int}/changes", explorer.changes),
            Route("/api/subjects/{id:int}/at", explorer.at),
        ],
        exception_handlers={HTTPException: refuse, RequestError: refuse, TorcheerError: refuse, Exception: fail},
    )
