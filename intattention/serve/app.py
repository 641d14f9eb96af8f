"""The HTTP application: routes, streams, and what a client's departure means."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from intattention.errors import IntAttentionError
from intattention.llm import LLM
from intattention.serve.events import Event
from intattention.serve.guard import BodyTooLargeError, Guard, error_response
from intattention.serve.metrics import Metrics
from intattention.serve.protocol import ChatRequest, CompletionRequest, Text
from intattention.serve.replies import ChatReply, CompletionReply, Json, Reply, Usage
from intattention.serve.scheduler import QueueFullError, Scheduler, StoppedError
from intattention.serve.sequence import Sequence
from intattention.serve.settings import Settings

STATIC = Path(__file__).with_name("static")
BODY_SECONDS = 30.0  # in which a body must have come
RETRY_SECONDS = 1


class Departed(Exception):
    """The client has closed the connection."""


class Api:
    """The handlers; one per server."""

    def __init__(self, llm: LLM, settings: Settings) -> None:
        self._llm, self._settings = llm, settings
        self.metrics = Metrics()
        self.scheduler = Scheduler(llm, settings, self.metrics)

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        self.scheduler.start()
        try:
            yield
        finally:
            await asyncio.to_thread(self.scheduler.stop)

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok", "model": self._settings.model})

    async def metrics_text(self, request: Request) -> Response:
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4")

    async def models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._model()]})

    async def model(self, request: Request) -> Response:
        self._check_model(request.path_params["name"])
        return JSONResponse(self._model())

    async def completions(self, request: Request) -> Response:
        asked = CompletionRequest.model_validate_json(await _body(request))
        self._check_model(asked.model)
        texts = asked.texts(self._llm, self._settings)
        reply = CompletionReply(asked, texts, self._settings.model, self._llm.tokenizer)
        usage = Usage(texts, asked.n or 1)
        return await self._answer(
            request, texts, reply, usage, bool(asked.stream), asked.include_usage
        )

    async def chat(self, request: Request) -> Response:
        asked = ChatRequest.model_validate_json(await _body(request))
        self._check_model(asked.model)
        texts = asked.texts(self._llm, self._settings)
        reply = ChatReply(asked, self._settings.model, self._llm.tokenizer)
        usage = Usage(texts, asked.n or 1)
        return await self._answer(
            request, texts, reply, usage, bool(asked.stream), asked.include_usage
        )

    async def _answer(
        self,
        request: Request,
        texts: list[Text],
        reply: Reply,
        usage: Usage,
        stream: bool,
        include_usage: bool,
    ) -> Response:
        running = Running(self.scheduler, request, texts)
        if stream:
            body = _stream(running, reply, usage, len(texts), include_usage)
            return StreamingResponse(body, media_type="text/event-stream")
        events: list[list[Event]] = [[] for _ in texts]
        async with contextlib.aclosing(running.events()) as incoming:
            async for choice, event in incoming:
                if event.error is not None:
                    raise event.error
                events[choice].append(event)
                usage.add(event)
        return JSONResponse(reply.whole(events, usage))

    def _model(self) -> Json:
        return {"id": self._settings.model, "object": "model", "created": 0, "owned_by": "local"}

    def _check_model(self, name: str) -> None:
        if name != self._settings.model:
            known = self._settings.model
            raise HTTPException(404, f"there is no model {name!r} here, only {known!r}")


class Running:
    """A request's texts in the scheduler, seen from the event loop; submitted at once."""

    def __init__(self, scheduler: Scheduler, request: Request, texts: list[Text]) -> None:
        self._scheduler, self._request = scheduler, request
        self._queue: asyncio.Queue[tuple[int, Event] | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def emit(choice: int, event: Event) -> None:
            loop.call_soon_threadsafe(self._queue.put_nowait, (choice, event))

        self._open = len(texts)
        self._sequences: list[Sequence] = scheduler.submit(texts, emit)

    async def events(self) -> AsyncGenerator[tuple[int, Event], None]:
        """(choice, event) until all choices have ended. Departed if the client goes away; then,
        and when the iterator is closed early, the texts are given up."""
        watcher = asyncio.create_task(self._watch())
        try:
            while self._open:
                item = await self._queue.get()
                if item is None:
                    raise Departed
                self._open -= item[1].last
                yield item
        finally:
            watcher.cancel()
            self._scheduler.cancel(self._sequences)

    async def _watch(self) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            pass
        self._queue.put_nowait(None)


async def _stream(
    running: Running, reply: Reply, usage: Usage, choices: int, include_usage: bool
) -> AsyncIterator[str]:
    """Server-sent events. An error after the start can only be told in one of them."""
    async with contextlib.aclosing(running.events()) as events:
        for choice in range(choices):
            if (opening := reply.opening(choice)) is not None:
                yield _sse(opening)
        try:
            async for choice, event in events:
                if event.error is not None:
                    raise event.error
                usage.add(event)
                yield _sse(reply.piece(choice, event))
        except Departed:
            return
        except Exception as error:
            yield f"data: {bytes(error_of(error).body).decode()}\n\n"
            return
    if include_usage:
        yield _sse(reply.usage(usage))
    yield "data: [DONE]\n\n"


def _sse(value: Any) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False, separators=(',', ':'))}\n\n"


async def _body(request: Request) -> bytes:
    try:
        return await asyncio.wait_for(request.body(), BODY_SECONDS)
    except asyncio.TimeoutError:
        raise HTTPException(408, f"the body did not come within {BODY_SECONDS:g} s") from None


def error_of(error: Exception) -> Response:
    """The response for whatever went wrong."""
    if isinstance(error, ValidationError):
        return error_response(400, "; ".join(_problem(e) for e in error.errors()))
    if isinstance(error, HTTPException):
        return error_response(error.status_code, error.detail)
    if isinstance(error, BodyTooLargeError):
        return error_response(413, str(error))
    if isinstance(error, QueueFullError):
        return error_response(429, str(error), "queue_full", {"Retry-After": str(RETRY_SECONDS)})
    if isinstance(error, StoppedError):
        return error_response(503, str(error))
    if isinstance(error, MemoryError):
        return error_response(503, "not enough memory for this request", "out_of_memory")
    if isinstance(error, (IntAttentionError, ValueError)):
        return error_response(400, str(error))
    if isinstance(error, (Departed, ClientDisconnect)):
        return Response(status_code=499)  # nobody reads it; the metrics do
    return error_response(500, f"{type(error).__name__}: {error}")


def _problem(error: Any) -> str:
    where = ".".join(map(str, error["loc"]))
    return f"{where}: {error['msg']}, got {str(error.get('input'))[:100]!r}"


async def _handle(request: Request, error: Exception) -> Response:
    return error_of(error)


def create_app(llm: LLM, settings: Settings) -> ASGIApp:
    """The application; its lifespan starts and stops the scheduler's thread."""
    api = Api(llm, settings)
    routes: list[BaseRoute] = [
        Route("/v1/chat/completions", api.chat, methods=["POST"]),
        Route("/v1/completions", api.completions, methods=["POST"]),
        Route("/v1/models", api.models),
        Route("/v1/models/{name:path}", api.model),
        Route("/health", api.health),
        Route("/metrics", api.metrics_text),
    ]
    if STATIC.is_dir():
        routes.append(Mount("/", StaticFiles(directory=STATIC, html=True)))
    kinds = (
        ValidationError, HTTPException, BodyTooLargeError, QueueFullError, StoppedError,
        MemoryError, IntAttentionError, ValueError, ArithmeticError, Departed, ClientDisconnect,
    )  # fmt: skip
    handlers = dict.fromkeys(kinds, _handle)
    app = Starlette(routes=routes, lifespan=api.lifespan, exception_handlers=handlers)
    return Guard(app, settings, api.metrics)
