"""The explorer's files: complete, closed to the outside, and one page when they are joined."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clearhead.draw import page_file as module
from clearhead.draw.page_file import CIVIDIS, FOLDER, page_file, static_files
from clearhead.draw.palette import DARK, HEADS, HIGH, LIGHT, LOW, ROLES

NAMESPACE = "http://www.w3.org/2000/svg"
GENERATED = {"palette.css", "palette.js"}
LINES = 300
TEXTS = {name: content.decode() for name, (_, content) in static_files().items()}
MODULES = {name: text for name, text in TEXTS.items() if name.endswith(".js")}
TOP_LEVEL = re.compile(r"^(?:export )?(?:async )?(?:class|function\*?|const|let) (\w+|\[[^\]]*\])", re.MULTILINE)


def recording(text: str = "je suis étudiant") -> dict[str, Any]:
    return {"model": {"name": "demo"}, "run": {"text": text}, "tensors": {}}


def read_back(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="recording">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    content: dict[str, Any] = json.loads(found[1])
    return content


def test_every_file_has_its_route() -> None:
    assert set(static_files()) == {path.name for path in FOLDER.iterdir()} | GENERATED


def test_media_types_are_those_of_the_files() -> None:
    kinds = {name: media.removesuffix("; charset=utf-8") for name, (media, _) in static_files().items()}
    assert kinds["index.html"] == "text/html"
    assert kinds["style.css"] == kinds["palette.css"] == "text/css"
    assert {kinds[name] for name in MODULES} == {"text/javascript"}


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_nothing_comes_from_another_address(name: str) -> None:
    addresses = re.findall(r"(?:https?:)?//[\w.-]+\.\w{2,}[^\s\"'`]*|wss?://|@import|url\(", TEXTS[name])
    assert [address for address in addresses if address not in {NAMESPACE, "url("}] == []
    assert re.findall(r"https?://", TEXTS[name].replace(NAMESPACE, "")) == []


@pytest.mark.parametrize("name", sorted(MODULES))
def test_text_never_becomes_markup_or_code(name: str) -> None:
    markup = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser"
    assert re.findall(rf"{markup}|\beval\b|new Function", MODULES[name]) == []


def test_the_page_has_no_inline_script_or_style() -> None:
    page = TEXTS["index.html"]
    assert re.findall(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=", page) == []


@pytest.mark.parametrize("name", sorted(set(MODULES) - GENERATED))
def test_modules_are_short_and_say_what_they_are(name: str) -> None:
    assert len(MODULES[name].splitlines()) <= LINES
    assert MODULES[name].startswith("/** ")


@pytest.mark.parametrize("name", sorted(MODULES))
def test_modules_keep_to_the_convention(name: str) -> None:
    text = MODULES[name]
    imports = re.findall(r"^import .*$", text, re.MULTILINE)
    assert len(module.IMPORT.findall(text)) == len(imports)
    assert all(needed in MODULES for needed in module.IMPORT.findall(text))
    code = re.sub(r"/\*.*?\*/", "", module.IMPORT.sub("", text), flags=re.DOTALL)
    assert re.findall(r"\bimport\b|export (?:default|\{|\*)", code) == []


def test_no_name_is_used_by_two_modules() -> None:
    owners: dict[str, str] = {}
    for name, text in MODULES.items():
        for found in TOP_LEVEL.findall(text):
            for word in re.findall(r"\w+", found):
                assert owners.setdefault(word, name) == name, word


@pytest.mark.parametrize("name", sorted(MODULES))
def test_what_is_imported_is_exported_there_and_used_here(name: str) -> None:
    for words, source in re.findall(r'^import \{([^}]*)\} from "\./([a-z-]+\.js)";$', MODULES[name], re.MULTILINE):
        for word in words.replace(" ", "").split(","):
            if word:
                assert re.search(
                    rf"^export (?:async )?(?:class|function\*?|const) {word}\b", MODULES[source], re.MULTILINE
                )
                assert len(re.findall(rf"\b{word}\b", MODULES[name])) > 1, word


def test_every_module_is_part_of_the_joined_page() -> None:
    assert sorted(module._in_order(TEXTS, "app.js")) == sorted(MODULES)


def test_modules_come_after_what_they_import() -> None:
    order = module._in_order(TEXTS, "app.js")
    for at, name in enumerate(order):
        assert set(module.IMPORT.findall(TEXTS[name])) <= set(order[:at])


def test_screen_and_paper_share_the_palette() -> None:
    for colour in (*HEADS, LOW, HIGH, LIGHT.paper, DARK.paper, *(role.colour for role in ROLES.values())):
        assert colour in TEXTS["palette.js"]
    assert f"--query: {ROLES['query'].colour};" in TEXTS["palette.css"]
    assert not re.findall(r"#[0-9A-Fa-f]{6}\b", TEXTS["style.css"])


def test_the_sequential_scale_is_cividis() -> None:
    colormaps = pytest.importorskip("matplotlib").colormaps
    ours = np.array([[int(colour[at : at + 2], 16) for at in (0, 2, 4)] for colour in CIVIDIS])
    places = np.linspace(0, 255, len(CIVIDIS))
    spread = np.stack([np.interp(np.arange(256), places, ours[:, part]) for part in range(3)], axis=1)
    assert np.abs(spread - 255 * np.asarray(colormaps["cividis"].colors)).max() < 4


def test_a_file_holds_everything() -> None:
    page = page_file(recording())
    assert read_back(page) == recording()
    assert "static/" not in page
    assert not re.findall(r"^\s*(?:import|export) ", page, re.MULTILINE)
    assert "<title>demo · clearhead</title>" in page


@pytest.mark.parametrize(
    "text", ["</script><script>alert(1)</script>", "<!--", "a & b", "\u2028\u2029", "]]>", "\\u003c"]
)
def test_no_text_can_leave_the_recording(text: str) -> None:
    page = page_file(recording(text))
    assert read_back(page)["run"]["text"] == text
    assert page.count("</script>") == page_file(recording()).count("</script>")


def test_a_model_may_have_any_name() -> None:
    page = page_file({"model": {"name": "</title><b>"}, "run": {}})
    assert "<title>&lt;/title&gt;&lt;b&gt; · clearhead</title>" in page


@pytest.mark.skipif(shutil.which("node") is None, reason="node, which checks the syntax, is not installed")
def test_the_joined_code_is_javascript(tmp_path: Path) -> None:
    code = page_file(recording()).rpartition('<script type="module">')[2].partition("</script>")[0]
    path = tmp_path / "joined.mjs"
    path.write_text(code, encoding="utf-8")
    done = subprocess.run(["node", "--check", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
