"""A page in a real browser, and what can be read from it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from tests.browser.fake import Fake, FakeRun
from tests.browser.fake_server import FakeServer

__all__ = ["CHROMIUM", "FLAGS", "TEXT", "VIEWS", "Window", "numbers", "settle", "table", "tensor", "window_of"]

CHROMIUM = shutil.which("chromium")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
TEXT = "je suis étudiant"
MODES = ("lines", "matrix", "square", "atlas")
VIEWS = (*(f"view=attention&mode={mode}" for mode in MODES), "view=steps", "view=decoding", "view=lens",
         "view=positions")  # fmt: skip


class Window:
    """A page of one server; remembers what it said that it should not have, and whom else it asked."""

    def __init__(self, browser: Any, address: str, **options: Any) -> None:
        self.address, self.wrong = address, list[str]()
        self.context = browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce", **options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(20_000)
        self.page.on(
            "console", lambda said: self.wrong.append(said.text) if said.type in {"error", "warning"} else None
        )
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", self._asked)

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((self.address.rpartition("/")[0], "data:", "blob:")):
            self.wrong.append(request.url)

    def show(self, state: str, text: str = TEXT) -> Any:
        """The page in that state, without loading it again."""
        hash = f"#text={quote(text)}&{state}"
        if self.page.url == "about:blank":
            self.page.goto(self.address + hash)
        else:
            self.page.evaluate(
                """hash => location.hash === hash || new Promise(done => {
                    addEventListener("hashchange", done, {once: true});
                    location.hash = hash;
                })""",
                hash,
            )
        settle(self.page)
        return self.page

    def close(self) -> None:
        self.context.close()
        assert self.wrong == []


def settle(page: Any) -> None:
    """Until the page has drawn what it was asked for."""
    page.wait_for_selector("body[aria-busy=false]")


@contextmanager
def window_of(browser: Any, fake: Fake) -> Iterator[tuple[FakeServer, Window]]:
    """The page of another model."""
    with FakeServer(fake) as own:
        window = Window(browser, own.address)
        yield own, window
        window.close()


def table(page: Any, card: str) -> list[list[str]]:
    """The table that stands for a picture."""
    button = page.locator(f"#card-{card} .tools button", has_text="Table")
    if button.get_attribute("aria-pressed") == "false":
        button.click()
        settle(page)
    rows = page.locator(f"#card-{card} .as-table tr")
    return [
        row.split("\t")
        for row in rows.evaluate_all("rows => rows.map(r => [...r.cells].map(c => c.textContent).join('\\t'))")
    ]


def numbers(rows: list[list[str]]) -> NDArray[Any]:
    signs = str.maketrans({"−": "-", "∞": "inf", "×": "nan"})
    return np.array([[float(word.translate(signs)) for word in row[1:]] for row in rows[1:]])


def tensor(tap: str, fake: Fake | None = None, text: str = TEXT, **of: Any) -> NDArray[Any]:
    found = FakeRun(fake or Fake(), text, None, **of).tensor(tap)
    assert found is not None
    return found[0]
