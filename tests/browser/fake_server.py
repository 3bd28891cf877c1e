"""The made-up model over HTTP, and the same as a recording for a page that opens from disk."""

import base64
import json
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
from numpy.typing import NDArray

from clearhead.draw.page_file import static_files
from tests.browser.fake import Answers, Fake, FakeRun, decode, positions

__all__ = ["FakeServer", "recording"]

POLICY = "default-src 'self'; style-src 'self'; img-src 'self' data: blob:"
Reply = tuple[int, str, bytes, dict[str, str]]


def as_json(content: object, status: int = 200) -> Reply:
    return status, "application/json", json.dumps(content).encode(), {}


def refused(sentence: str, status: int = 404) -> Reply:
    return as_json({"error": {"message": sentence}}, status)


def as_bytes(array: NDArray[Any], axes: str) -> Reply:
    shape = ",".join(map(str, array.shape))
    return 200, "application/octet-stream", array.tobytes(), {"X-Shape": shape, "X-Axes": axes}


class FakeServer:
    """Serves the page and the made-up model on a free port; remembers every body that was posted."""

    def __init__(self, fake: Fake) -> None:
        self.fake, self.runs, self.posted = fake, dict[str, FakeRun](), list[tuple[str, dict[str, Any]]]()
        self.slow = ""  # a text for which the answer takes a while
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"  # connections are used again, as browsers like it

            def do_GET(self) -> None:
                self.reply(owner.get(self.path))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.reply(owner.post(self.path, json.loads(body)))

            def reply(self, answer: Reply) -> None:
                status, kind, content, headers = answer
                self.send_response(status)
                fixed = {"Content-Type": kind, "Content-Length": str(len(content)), "Content-Security-Policy": POLICY}
                for name, value in {**fixed, **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *of: object) -> None:
                """Silence: a test's output is the test's."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/"

    def __enter__(self) -> "FakeServer":
        Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *of: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    def bodies(self, route: str) -> list[dict[str, Any]]:
        """What was posted to a route so far."""
        return [body for path, body in self.posted if path == f"/api/{route}"]

    def get(self, address: str) -> Reply:
        parts = urlsplit(address)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        files = static_files()
        name = parts.path.removeprefix("/static/") if parts.path != "/" else "index.html"
        if name in files:
            return 200, *files[name], {}
        match parts.path.strip("/").split("/"):
            case ["api", "model"]:
                return as_json(self.fake.model)
            case ["api", "positions"]:
                return as_json(positions(self.fake, int(query["count"]))[0])
            case ["api", "positions", "tensor"]:
                about, table = positions(self.fake, int(query["count"]))
                return as_bytes(table, about["axes"])
            case ["api", "runs", key, *rest] if key in self.runs:
                return self._of_run(self.runs[key], rest, query)
        return refused("There is no such recording; run the text again.")

    def _of_run(self, run: FakeRun, rest: list[str], query: Mapping[str, str]) -> Reply:
        match rest:
            case ["tensors", tap]:
                found = run.tensor(tap)
                if found is None:
                    return refused(f"{tap} was not recorded.")
                array, axes = found
                return as_bytes(array[int(query["head"])], axes[1:]) if "head" in query else as_bytes(array, axes)
            case ["thumbnails"]:
                return as_bytes(run.thumbnails(int(query["side"])), "NLM")
            case [name]:
                answer = getattr(Answers, name)(run, query)
                return refused(f"{name} is not known here.") if answer is None else as_json(answer)
        return refused("There is nothing here.")

    def post(self, path: str, body: dict[str, Any]) -> Reply:
        self.posted.append((path, body))
        if body["text"] == self.slow:
            time.sleep(0.3)
        if path == "/api/decode":
            return as_json(decode(body))
        if len(body["text"].split()) > self.fake.longest:
            return refused(f"The text has more than {self.fake.longest} tokens; shorten it.", 422)
        run = FakeRun(self.fake, body["text"], body["answer"], body["off"])
        run = self.runs.setdefault(run.id, run)
        return as_json(run.summary, 201)


def packed(array: NDArray[Any], axes: str) -> dict[str, Any]:
    content = base64.b64encode(array.tobytes()).decode()
    return {"shape": list(array.shape), "axes": axes, "dtype": str(array.dtype), "data": content}


def recording(fake: Fake, text: str) -> dict[str, Any]:
    """All that a page that opens from disk is given."""
    run = FakeRun(fake, text, None)
    taps = [f"{part['name']}.{what}" for part in fake.attentions()
            for what in "q k v scores scaled bias masked weights heads output".split()]  # fmt: skip
    tensors = {tap: packed(*found) for tap in taps if (found := run.tensor(tap)) is not None}
    about, table = positions(fake, 64)
    side = list(run.sides)[-1]
    asked = {"text": text, "forced": [], "temperature": 1.0, "top_k": 0, "off": {}, "beams": 1}
    return {
        "model": fake.model, "run": run.summary, "tensors": tensors,
        "thumbnails": packed(run.thumbnails(32), "NLM"), "lens": Answers.lens(run, {"top": "10"}),
        "decode": decode(asked) if fake.model["writes"] else None,
        "positions": {"about": about, "tensor": packed(np.asarray(table), about["axes"])},
        "contributions": Answers.contributions(run, {}),
        "shares": {str(at): Answers.shares(run, {"position": str(at)}) for at in range(len(run.sides[side]))},
    }  # fmt: skip
