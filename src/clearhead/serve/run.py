"""The server as a process: an app on a socket, until it is told to stop."""

import errno
import ipaddress
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import uvicorn
from starlette.types import ASGIApp

from clearhead.errors import ConfigError
from clearhead.serve.app import create_app
from clearhead.serve.connections import Connections, Patience
from clearhead.serve.context import Context
from clearhead.serve.guards import Rules, host_names
from clearhead.serve.keys import Keys
from clearhead.serve.limits import Limits
from clearhead.serve.models import Wanted, load_models
from clearhead.serve.work import Budget

__all__ = ["Serving", "bind", "is_loopback", "make_server", "run_server"]

BACKLOG = 1_024
TAKEN = "it is taken by another program; choose another with --port, or 0 for any that is free"


@dataclass(frozen=True)
class Serving:
    """Which models are served where, to whom, and how.

    names         by which the server may be called besides that of its address
    origins       web pages of other origins that may call
    connections   open at the same time
    """

    models: tuple[Wanted, ...]
    host: str = "127.0.0.1"
    port: int = 8000
    names: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    keys: Keys = field(default_factory=Keys)
    connections: int = 512
    precision: str = "float32"
    threads: int | None = None
    budget: Budget = field(default_factory=Budget)
    limits: Limits = field(default_factory=Limits)


def run_server(of: Serving, say: Callable[[str], None]) -> None:
    """Load the models and serve them, until a signal comes; `say` is told where."""
    with bind(of.host, of.port) as listening:
        models = load_models(of.models, of.budget, of.limits, precision=of.precision, threads=of.threads)
        rules = Rules(hosts=host_names(of.host, of.names), origins=of.origins)
        app_for = partial(create_app, Context(models, of.limits, of.keys), rules)
        if not is_loopback(of.host):
            whoever = "whoever has an API key" if len(of.keys) else "anybody, since there are no API keys (--api-keys),"
            say(
                f"Warning: {of.host} can be reached from other machines, and {whoever} can use the models. "
                "What is sent travels in clear: put a proxy with TLS before it."
            )
        shown = f"[{of.host}]" if ":" in of.host else of.host
        say(f"{', '.join(models.by_name)} at http://{shown}:{listening.getsockname()[1]}; Ctrl-C ends.")
        make_server(app_for, Patience(most=of.connections)).run(sockets=[listening])


def make_server(app_for: Callable[[Callable[[], bool]], ASGIApp], patience: Patience) -> uvicorn.Server:
    """A server for the app that `app_for` makes, which is given a way to ask whether the server is closing.

    On SIGTERM or SIGINT the server takes no new request, answers all that it has accepted, and ends.
    """
    config = uvicorn.Config(
        app_for(lambda: server.should_exit),
        http=Connections(patience),  # type: ignore[arg-type]  # whatever makes a protocol will do
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
    )
    server = uvicorn.Server(config)
    return server


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 takes any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        words = str(getattr(error, "strerror", None) or error).partition(" (while ")[0]  # where Python adds the address
        why = TAKEN if getattr(error, "errno", None) == errno.EADDRINUSE else words
        raise ConfigError(f"nothing can listen at {host}, port {port}: {why}") from error


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
