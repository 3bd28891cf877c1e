"""What all addresses of the server share."""

from dataclasses import dataclass, field
from typing import Any

from clearhead.serve.figures import Traffic
from clearhead.serve.keys import Keys
from clearhead.serve.limits import Limits
from clearhead.serve.models import Models
from clearhead.serve.schemas import Problem

__all__ = ["REFUSALS", "Context", "refusals"]


@dataclass(frozen=True)
class Context:
    """The models, who may ask them for how much, and what is counted."""

    models: Models
    limits: Limits = field(default_factory=Limits)
    keys: Keys = field(default_factory=Keys)
    traffic: Traffic = field(default_factory=Traffic)


# What any address may answer instead, for the schema: by status.
REFUSALS = {
    400: "The request cannot be met.",
    401: "The API key is missing or wrong.",
    403: "A page of another origin.",
    404: "There is no such model.",
    408: "The body did not come in time.",
    413: "The body is too large.",
    415: "The body is of another kind.",
    421: "The name in Host is not the server's.",
    429: "Too many wait already.",
    500: "A mistake of the server's.",
    503: "The server is shutting down.",
    504: "The deadline has passed.",
}


def refusals(*only: int) -> dict[int | str, dict[str, Any]]:
    """All of them, or these alone, as FastAPI wants to know them."""
    return {status: {"model": Problem, "description": REFUSALS[status]} for status in only or REFUSALS}
