"""The explorer under the pointer: how long the page takes from a move to the next cell until it is painted.

A made-up model (that of the browser tests) reads a text of 256 tokens; the pointer is moved over the board of each view
along a fixed path that enters another cell each time. What is timed is the page's own work, in the browser's clock: the
event, the reading of the cell, the second canvas, and the wait until that canvas can be read back. Frames of 60 Hz
leave 16 ms.
"""

import argparse
import json
import sys
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import harness

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.browser.fake import Fake
from tests.browser.fake_server import FakeServer
from tests.browser.windows import CHROMIUM, FLAGS

VIEWS = {
    "lines": "view=attention&mode=lines",
    "matrix": "view=attention&mode=matrix",
    "six steps": "view=steps",
}
HOVER = """moves => {
    const board = document.querySelector("#view .board");
    const [base, over] = board.querySelectorAll("canvas");
    const box = base.getBoundingClientRect();
    const context = over.getContext("2d", {willReadFrequently: false});
    return Array.from({length: moves}, (_, at) => {
        const clientX = box.left + box.width * (0.35 + 0.3 * ((at * 37) % 101) / 101);
        const clientY = box.top + box.height * (0.35 + 0.3 * ((at * 53) % 103) / 103);
        const start = performance.now();
        board.dispatchEvent(new PointerEvent("pointermove", {clientX, clientY, bubbles: true}));
        context.getImageData(0, 0, 1, 1);
        return performance.now() - start;
    });
}"""


def measure(browser: Any, address: str, state: str, text: str, moves: int) -> dict[str, Any]:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(f"{address}#text={text.replace(' ', '+')}&{state}")
    page.wait_for_selector("body[aria-busy=false]", timeout=120_000)
    page.evaluate(HOVER, 20)  # warm up
    times = page.evaluate(HOVER, moves)
    page.close()
    return {"median": median(times), "p95": quantiles(times, n=20)[-1], "milliseconds": times}


def main() -> None:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=256, help="length of the text (256)")
    parser.add_argument("--moves", type=int, default=300, help="moves of the pointer in each view (300)")
    options = parser.parse_args()
    if CHROMIUM is None:
        sys.exit("chromium is not installed")
    text = " ".join(f"mot{i}" for i in range(options.tokens - 1))
    record = {"config": vars(options), **harness.surroundings(["numpy", "playwright"]), "views": {}}
    with sync_playwright() as driver, FakeServer(Fake(layers=1)) as server:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        record["versions"]["chromium"] = browser.version
        for name, state in VIEWS.items():
            record["views"][name] = found = measure(browser, server.address, state, text, options.moves)
            print(f"{name:10} median {found['median']:.2f} ms, p95 {found['p95']:.2f} ms", flush=True)
        browser.close()
    harness.RESULTS.mkdir(exist_ok=True)
    (harness.RESULTS / "explorer_hover.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
