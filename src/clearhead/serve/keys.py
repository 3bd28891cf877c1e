"""API keys: who may ask."""

import hmac
import os
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import final

from fastapi import Request

from clearhead.errors import ConfigError, DataError
from clearhead.serve.guards import RefusedError

__all__ = ["VARIABLE", "Keys", "bearer", "load_keys"]

VARIABLE = "CLEARHEAD_API_KEYS"
SHORTEST = 8


@final
class Keys:
    """The keys that open this server; where there is none, it is open. Only their digests are kept."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._digests = [_digest(key) for key in keys]

    def __len__(self) -> int:
        return len(self._digests)

    def check(self, given: str | None) -> None:
        """Refuse a wrong key or none. Every key is compared, whichever fits, in the same time."""
        if not self._digests:
            return
        digest = _digest(given or "")
        if not sum([hmac.compare_digest(digest, known) for known in self._digests]):
            raise RefusedError(401, "this server wants an API key, and this is none of its own", "wrong_api_key")

    def check_header(self, request: Request) -> None:
        """Refuse a request without one of the keys in `Authorization: Bearer …`."""
        self.check(bearer(request))


def bearer(request: Request) -> str | None:
    """The key that a request brings in its header."""
    kind, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if kind.lower() == "bearer" else None


def load_keys(file: Path | None = None) -> Keys:
    """The keys of a file, one in each line, and those of the environment, with white space between them."""
    lines = [] if file is None else _lines(file)
    found = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if file is not None and not found:
        raise ConfigError(f"{file} holds no API key: write one in each line")
    found += os.environ.get(VARIABLE, "").split()
    short = next((number for number, key in enumerate(found, 1) if len(key) < SHORTEST), None)
    if short is not None:
        raise ConfigError(f"API key {short} is shorter than {SHORTEST} characters: it could be guessed")
    return Keys(found)


def _lines(file: Path) -> list[str]:
    try:
        return file.read_bytes().decode("utf-8").splitlines()
    except OSError as error:
        why = f"{error.strerror}; name a file with one in each line"
        raise DataError(f"the API keys cannot be read from {str(file)!r}: {why}") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise DataError(f"{file}, line {line}: no utf-8; save the API keys as text in that encoding") from error


def _digest(key: str) -> bytes:
    return sha256(key.encode("utf-8", "surrogatepass")).digest()
