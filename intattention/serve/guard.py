"""What a request must get past: host name, key, size; and its line in the metrics."""

import hmac
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from intattention.serve.metrics import Metrics
from intattention.serve.settings import Settings

CLOSED = ("/v1/", "/metrics")  # not the page, nor the probe
PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/models", "/health", "/metrics", "/")


class BodyTooLargeError(Exception):
    """The body exceeds the limit."""


def error_response(
    status: int, message: str, code: str | None = None, headers: dict[str, str] | None = None
) -> JSONResponse:
    """OpenAI's form of an error."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    error: dict[str, Any] = {"message": message, "type": kind, "param": None, "code": code}
    return JSONResponse({"error": error}, status, headers)


class Guard:
    """ASGI middleware around the whole application.

    A page of another site can make a browser send requests here: names that are not this
    machine's are refused (DNS rebinding), and so are bodies that are not declared as JSON, since
    a browser sends others without asking first.
    """

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"] if scope["path"] in PATHS else "other"

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._metrics.request(path, message["status"])
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, counted)
            return
        await self._app(scope, self._limited(receive), counted)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        headers, settings = Headers(scope=scope), self._settings
        host = _host_name(headers.get("host", ""))
        if settings.hosts and host not in settings.hosts:
            return error_response(403, f"the host name {host!r} is not served here")
        if settings.api_key is not None and scope["path"].startswith(CLOSED):
            given = headers.get("authorization", "").removeprefix("Bearer ").strip()
            if not hmac.compare_digest(given.encode(), settings.api_key.encode()):
                challenge = {"WWW-Authenticate": "Bearer"}
                return error_response(401, "wrong or no API key", "invalid_api_key", challenge)
        if scope["method"] == "POST":
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                return error_response(415, f"the content type is {kind!r}, not application/json")
            length = headers.get("content-length", "0")
            if not length.isdecimal() or int(length) > settings.body_bytes:
                return error_response(413, self._too_large())
        return None

    def _limited(self, receive: Receive) -> Receive:
        """Counts what comes, since the length need not be stated."""
        total = 0

        async def limited() -> Message:
            nonlocal total
            message = await receive()
            total += len(message.get("body", b""))
            if total > self._settings.body_bytes:
                raise BodyTooLargeError(self._too_large())
            return message

        return limited

    def _too_large(self) -> str:
        return f"the body exceeds {self._settings.body_bytes} bytes"


def _host_name(host: str) -> str:
    """Without the port."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0].lower()
