"""What every request passes before an app of ours sees it, and the one form in which requests are refused.

    {"error": {"message": "one sentence", "type": "invalid_request_error", "code": "wrong_host"}}

`guarded(app, rules)` is an ASGI app around any other. It checks the names in Host and Origin, reads the body as far as
it is allowed to be, refuses while the server is closing, adds headers that keep browsers out of trouble, and logs each
refusal in a line without anything secret. `add_refusals(app)` gives the errors of a FastAPI app the same form.
"""

import asyncio
import ipaddress
import logging
import re
import time
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clearhead.errors import ClearheadError

__all__ = ["RefusedError", "Rules", "add_refusals", "error_body", "guarded", "host_names"]

LOG = logging.getLogger("clearhead.serve")
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::\d{1,5})?")
SHOWN = 120  # characters of a path that a line of the log has room for

# What OpenAI's clients expect to read beside the status.
TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "server_error",
    504: "timeout_error",
}
SENTENCES = {
    400: "the body cannot be read as JSON: it must be UTF-8, whole, and not nested deeply",
    404: "there is nothing at this address",
    405: "this address does not answer to that method",
    500: "the server made a mistake; its log says which",
}


class RefusedError(ClearheadError):
    """A request that is not answered; its message is for whoever sent it."""

    def __init__(self, status: int, message: str, code: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.code = status, message, code
        self.headers = {} if retry_after is None else {"retry-after": str(retry_after)}


@dataclass(frozen=True)
class Rules:
    """What requests are held to.

    hosts      names that Host may have, without port (`host_names`); "*" stands for any address that is written as one
    origins    web pages of other origins that may call
    body       bytes that a request may have
    patience   seconds within which its body has come
    policy     the Content-Security-Policy of every response
    closing    whether the server is finishing and takes nothing new
    busy       whether there is no room for work of any kind: then none is put into reading what is wanted
    watch      told of every response: its scope, its status, seconds
    """

    hosts: frozenset[str] = frozenset(LOOPBACK)
    origins: tuple[str, ...] = ()
    body: int = 1 << 20
    patience: float = 20.0
    policy: str = "default-src 'none'; frame-ancestors 'none'"
    closing: Callable[[], bool] = lambda: False
    busy: Callable[[], bool] = lambda: False
    watch: Callable[[Scope, int, float], None] = lambda scope, status, seconds: None


def host_names(bound: str, more: Sequence[str] = ()) -> frozenset[str]:
    """The names by which a server that listens at `bound` may be called: that one, those of this machine, and `more`.

    >>> sorted(host_names("0.0.0.0", ["box.example"]))
    ['*', '127.0.0.1', '[::1]', 'box.example', 'localhost']
    """
    try:
        address = ipaddress.ip_address(bound)
    except ValueError:
        name = bound.lower()
    else:
        literal = f"[{address}]" if address.version == 6 else str(address)
        name = "*" if address.is_unspecified else literal
    return frozenset({*LOOPBACK, name, *(one.lower() for one in more)})


def error_body(status: int, message: str, code: str) -> dict[str, Any]:
    """A refusal, as every client of ours reads it."""
    return {"error": {"message": message, "type": TYPES.get(status, "invalid_request_error"), "code": code}}


def guarded(app: ASGIApp, rules: Rules) -> ASGIApp:
    """The app, behind these rules."""
    if rules.origins:
        app = CORSMiddleware(
            app, allow_origins=rules.origins, allow_methods=["GET", "POST"], allow_headers=["authorization"]
        )
    return _Guard(app, rules)


def add_refusals(app: FastAPI) -> None:
    """Give every error of the app the one form."""

    def refused(request: Request, error: Exception) -> JSONResponse:
        found = _as_refusal(error)
        return _response(found)

    for kind in (ClearheadError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, refused)


def _as_refusal(error: Exception) -> RefusedError:
    match error:
        case RefusedError():
            return error
        case RequestValidationError():
            return RefusedError(400, _sentence(error), "invalid_value")
        case HTTPException(status_code=status, detail=detail):
            refusal = RefusedError(status, SENTENCES.get(status, str(detail)), "http_error")
            refusal.headers |= dict(error.headers or {})
            return refusal
        case ClearheadError():
            return RefusedError(400, str(error), "invalid_value")
    LOG.error("a mistake of the server's own", exc_info=error)
    return RefusedError(500, SENTENCES[500], "server_error")


def _sentence(error: RequestValidationError) -> str:
    """The first thing that is wrong with a request, by the name of the field."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if part != "body")
    message = str(first["msg"])
    if first["type"] == "json_invalid":
        return f"the body is no JSON: {first.get('ctx', {}).get('error', message)}"
    return f"{where or 'the body'}: {message[:1].lower()}{message[1:]}"


def _response(refusal: RefusedError) -> JSONResponse:
    # A message may quote half a character, which JSON can write and UTF-8 cannot.
    message = refusal.message.encode("utf-8", "backslashreplace").decode()
    content = error_body(refusal.status, message, refusal.code)
    return JSONResponse(content, refusal.status, headers=refusal.headers)


@final
class _Guard:
    def __init__(self, app: ASGIApp, rules: Rules) -> None:
        self.app, self.rules = app, rules
        headers = {
            "content-security-policy": rules.policy,
            "x-content-type-options": "nosniff",
            "x-frame-options": "DENY",
            "referrer-policy": "no-referrer",
            "cross-origin-opener-policy": "same-origin",
            "cache-control": "no-store",
        }
        self.headers = [(name.encode(), value.encode()) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self._answer(scope, receive, _Sender(scope, send, self.headers, self.rules))

    async def _answer(self, scope: Scope, receive: Receive, send: "_Sender") -> None:
        try:
            self._check(scope)
            body = await self._body(scope, receive)
            if body is not None:
                await self.app(scope, _replayed(body, receive), send)
        except RefusedError as refusal:
            await _response(refusal)(scope, receive, send)
        except Exception as error:
            # Starlette has answered 500 by now and hands the error on for others to report.
            if not send.status:
                await _response(_as_refusal(error))(scope, receive, send)
            elif send.status < 400:
                LOG.error("a mistake in the middle of an answer, which ends it", exc_info=error)

    def _check(self, scope: Scope) -> None:
        """Refuse requests to another name (a page that makes its own name point here), and those of other pages."""
        if self.rules.closing():
            raise RefusedError(503, "the server is shutting down: try again in a moment", "closing", retry_after=5)
        if scope["method"] == "POST" and self.rules.busy():
            raise RefusedError(429, "too many requests wait already: try again in a moment", "busy", retry_after=1)
        named = [value for name, value in scope["headers"] if name == b"host"]
        host = _name(named[0]) if len(named) == 1 else None
        if host is None or not self._is_ours(host):
            raise RefusedError(
                421, "this server does not go by the name in Host: start it with --host-name to add one", "wrong_host"
            )
        for name, value in scope["headers"]:
            if name == b"origin" and not self._may_call(value.decode("latin-1"), named[0].decode("latin-1")):
                raise RefusedError(
                    403, "pages of other origins may not call this server: start it with --cors", "wrong_origin"
                )

    def _is_ours(self, host: str) -> bool:
        return host in self.rules.hosts or ("*" in self.rules.hosts and _is_address(host))

    def _may_call(self, origin: str, host: str) -> bool:
        return origin in self.rules.origins or "*" in self.rules.origins or origin.partition("://")[2] == host

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        """The whole body, refused as soon as it is too large or too late; None where the client left."""
        stated = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        size, parts = 0, list[bytes]()
        too_large = RefusedError(413, f"a request has at most {self.rules.body:,} bytes", "body_too_large")
        if not stated.isdigit() or int(stated[:20]) > self.rules.body:
            raise too_large
        try:
            async with asyncio.timeout(self.rules.patience):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > self.rules.body:
                        raise too_large
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            raise RefusedError(408, "the body did not come in time", "body_too_slow") from None


class _Sender:
    """Sends on, with our headers; notes the status, and tells of it when the response is over."""

    def __init__(self, scope: Scope, send: Send, headers: list[tuple[bytes, bytes]], rules: Rules) -> None:
        self.scope, self.send, self.headers, self.rules = scope, send, headers, rules
        self.status, self.begun = 0, time.monotonic()

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            given = {name.lower() for name, _ in message.get("headers", [])}
            more = [header for header in self.headers if header[0] not in given]
            if self.rules.closing():
                more.append((b"connection", b"close"))
            message = {**message, "headers": [*message.get("headers", []), *more]}
            if self.status >= 400:
                self._log()
        await self.send(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self.rules.watch(self.scope, self.status, time.monotonic() - self.begun)

    def _log(self) -> None:
        """The query and the headers stay out of the log: keys may be in them."""
        client = (self.scope.get("client") or ("?",))[0]
        path = repr(self.scope["path"][:SHOWN])
        LOG.warning("%s refused: %s %s from %s", self.status, self.scope["method"], path, client)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """What the app receives: the body at once, then whatever else comes."""
    waiting = [body]

    async def replay() -> Message:
        return {"type": "http.request", "body": waiting.pop()} if waiting else await receive()

    return replay


def _name(value: bytes) -> str | None:
    found = HOST.fullmatch(value.decode("latin-1").lower())
    return found[1] if found else None


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True
