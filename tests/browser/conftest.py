"""One browser for each file of tests; without one, or without the package that drives it, they are skipped."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.fake import Fake
from tests.browser.fake_server import FakeServer
from tests.browser.windows import CHROMIUM, FLAGS, Window


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright, which drives the browser, is missing")
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def server() -> Iterator[FakeServer]:
    with FakeServer(Fake()) as running:
        yield running


@pytest.fixture(scope="module")
def shared(browser: Any, server: FakeServer) -> Iterator[Window]:
    window = Window(browser, server.address, accept_downloads=True)
    yield window
    window.close()


@pytest.fixture
def window(shared: Window, server: FakeServer) -> Iterator[Window]:
    """One page for most tests: each begins with a state of its own, and ends without a word of complaint."""
    server.posted.clear()
    shared.page.set_viewport_size({"width": 1280, "height": 800})
    yield shared
    wrong, shared.wrong = shared.wrong, []
    assert wrong == []
