"""Nothing that is published names a folder of somebody's machine or the host of a package registry."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT

# In pieces, so that this file does not hold what it looks for.
FOLDERS = ("ho" + "me", "ro" + "ot", "wo" + "rk", "Us" + "ers")
HOSTS = (
    "py" + "pi.org",
    "python" + "hosted.org",
    "download.py" + "torch.org",
    "ana" + "conda.org",
    "npm" + "js.org",
    "npm" + "js.com",
)
PRIVATE = re.compile(rf"(?<![\w.~-])/(?:{'|'.join(FOLDERS)})/|{'|'.join(map(re.escape, HOSTS))}")


def private_places(text: str) -> list[str]:
    """The lines of `text` that name a machine's folder or a registry's host."""
    return [f"line {n}: {line.strip()}" for n, line in enumerate(text.splitlines(), 1) if PRIVATE.search(line)]


def published() -> Iterator[Path]:
    """Every file that git tracks or would track."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
    paths = (ROOT / name for name in listed.split("\0") if name)
    return (path for path in paths if path.is_file())


def text_of(path: Path) -> str:
    """The text of the file; nothing where it holds a zero byte, as pictures and weights do."""
    content = path.read_bytes()
    return "" if b"\0" in content else content.decode("utf-8", errors="replace")


def test_nothing_private_is_published() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: what would be published is unknown")
    found = [f"{path.relative_to(ROOT)}, {place}" for path in published() for place in private_places(text_of(path))]
    assert found == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_machine_path_would_be_found(folder: str) -> None:
    assert private_places(f"fine\nread('/{folder}/someone/data')") == [f"line 2: read('/{folder}/someone/data')"]
    assert private_places(f"https://example.org/{folder}/paper and {folder}/relative and ../{folder}/x") == []


@pytest.mark.parametrize("host", HOSTS)
def test_a_registry_host_would_be_found(host: str) -> None:
    assert private_places(f"pip install --index-url https://{host}/simple x")


def test_binary_files_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"\0\xff/" + FOLDERS[0].encode() + b"/")
    assert text_of(path) == ""
