"""The README followed to the letter by somebody who has only the wheel: each block run in an empty folder and timed.

    make rehearsal

Builds the wheel, installs it with all extras in a new environment, and goes through the README's blocks in their order.
Blocks of `make` need the project itself and are left to CI. A server runs until the blocks after it that ask it
something are done. Ends with an error where a block fails, where the first translation takes 5 seconds, or where help
takes 0.3. The times go to `results/rehearsal.json`.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness import RESULTS, surroundings

HOME = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SERVERS = {"serve": 8000, "explore": 8765}  # verbs that run until they are stopped, and where they listen
FIRST_TRANSLATION, HELP = 5.0, 0.3  # seconds


@dataclass(frozen=True)
class Timed:
    what: str
    seconds: float


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """The README's blocks, each with its language."""
    yield from BLOCK.findall(text)


def run(command: list[str], folder: Path, variables: dict[str, str], *, what: str) -> Timed:
    """Run a command in the folder, say how long it took, and leave where it fails."""
    start = time.perf_counter()
    ended = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)
    seconds = time.perf_counter() - start
    print(f"{seconds:8.2f} s  {what}", flush=True)
    if ended.returncode:
        sys.exit(f"it left with code {ended.returncode}:\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}")
    return Timed(what, seconds)


def installed(scratch: Path) -> dict[str, str]:
    """The environment variables of somebody who has installed the wheel, and nothing else."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    run([*pip, "wheel", "--no-deps", "-w", str(scratch / "wheel"), str(HOME)], scratch, dict(os.environ), what="wheel")
    (wheel,) = (scratch / "wheel").iterdir()
    print(f"          {wheel.name}, {wheel.stat().st_size / 1e6:.1f} MB", flush=True)
    run([sys.executable, "-m", "venv", "environment"], scratch, dict(os.environ), what="environment")
    binaries = scratch / "environment" / "bin"
    chosen = ["-c", str(HOME / "constraints.txt"), f"{wheel}[all]"]
    new_pip = [str(binaries / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    run([*new_pip, "install", *chosen], scratch, dict(os.environ), what="installation")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    own = {"PATH": f"{binaries}:{os.environ['PATH']}", "HOME": str(scratch), "BROWSER": shutil.which("true") or "true"}
    return {**kept, **own}


@contextmanager
def serving(block: str, folder: Path, variables: dict[str, str]) -> Iterator[Timed]:
    """The server of a block, from when it listens."""
    port = SERVERS[block.split()[1]]
    start = time.perf_counter()
    server = subprocess.Popen(["bash", "-c", f"exec {block}"], cwd=folder, env=variables, stderr=subprocess.PIPE)
    try:
        while not _listens(port):
            if server.poll() is not None or time.perf_counter() - start > 60:
                sys.exit(
                    f"`{block}` does not listen at port {port}: {server.stderr.read() if server.stderr else b''!r}"
                )
            time.sleep(0.05)
        yield Timed(block, time.perf_counter() - start)
    finally:
        server.terminate()
        server.wait(timeout=30)


def _listens(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


def followed(text: str, folder: Path, variables: dict[str, str]) -> list[Timed]:
    """Every line of the README's blocks in its turn; those of Python together, as they share their names."""
    done = []
    with ExitStack() as servers:
        lines = [line.strip() for language, block in blocks(text) if language == "sh" for line in block.splitlines()]
        for line in filter(None, lines):
            first, *words = line.split()
            if first == "make":
                continue
            if first != "curl":
                servers.close()
            if first == "clearhead" and words[0] in SERVERS:
                done.append(servers.enter_context(serving(line, folder, variables)))
                print(f"{done[-1].seconds:8.2f} s  {line}", flush=True)
            else:
                done.append(run(["bash", "-euo", "pipefail", "-c", line], folder, variables, what=line))
    (folder / "README.md").write_text(text, encoding="utf-8")
    done.append(run(["python", "-m", "doctest", "README.md"], folder, variables, what="the blocks of Python"))
    return done


def helped(folder: Path, variables: dict[str, str]) -> list[Timed]:
    """How long help takes, at best of three: for nothing, for a slip, for each verb."""
    listed = subprocess.run(["clearhead", "--help"], cwd=folder, env=variables, capture_output=True, text=True).stdout
    verbs = re.findall(r"^  ([a-z]+)  ", listed.partition("Commands:")[2], re.MULTILINE)
    done = []
    for words in ([], ["trnslate"], *([verb, "--help"] for verb in verbs)):
        times = []
        for _ in range(3):
            start = time.perf_counter()
            subprocess.run(["clearhead", *words], cwd=folder, env=variables, capture_output=True)
            times.append(time.perf_counter() - start)
        done.append(Timed(" ".join(["clearhead", *words]), min(times)))
    slowest = max(done, key=lambda one: one.seconds)
    print(f"{slowest.seconds:8.2f} s  {slowest.what}, the slowest help of {len(done)}", flush=True)
    return done


def main() -> None:
    text = (HOME / "README.md").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as name:
        scratch, folder = Path(name), Path(name) / "empty"
        folder.mkdir()
        variables = installed(scratch)
        help_, done = helped(folder, variables), followed(text, folder, variables)
    RESULTS.mkdir(exist_ok=True)
    record = {"help": [vars(one) for one in help_], "blocks": [vars(one) for one in done], **surroundings(["torch"])}
    (RESULTS / "rehearsal.json").write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    first = next(one for one in done if "clearhead translate" in one.what)
    slow = [f"`{one.what}` took {one.seconds:.2f} seconds" for one in help_ if one.seconds >= HELP]
    if first.seconds >= FIRST_TRANSLATION:
        slow.append(f"the first translation took {first.seconds:.1f} seconds")
    if slow:
        sys.exit("; ".join(slow))
    print(f"The first translation appeared after {first.seconds:.1f} seconds.")


if __name__ == "__main__":
    main()
