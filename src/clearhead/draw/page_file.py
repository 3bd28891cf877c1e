"""The explorer's page: its files for a server, or one file with everything in it that opens from disk.

The modules in `page/` keep to a convention that makes joining them trivial: imports stand at the top, one to a line,
and name files beside them; exports are named; no name of a module's top level is another's as well. So the joined page
is the same code without its `import` and `export` words, every module after those that it imports.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from clearhead.draw.palette import DARK, GLYPHS, HEADS, HIGH, LIGHT, LOW, MIDDLE, ROLES, Theme

__all__ = ["page_file", "static_files"]

FOLDER = Path(__file__).parent / "page"
MEDIA = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
IMPORT = re.compile(r'^import \{[^}]*\} from "\./([a-z-]+\.js)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export ", re.MULTILINE)
# What may end a script, or be a line's end inside a string, in some reader of HTML.
UNSAFE = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}

# cividis at 52 equal steps; between them the page interpolates.
CIVIDIS = (
    "00224e 002656 002a5f 002d68 003070 083370 163770 203a6f 273e6e 2e416d 34456c 3a486c 3f4c6c 444f6c 49536c "
    "4e566c 535a6d 575d6d 5c616e 60646f 656870 696b71 6d6f72 727274 767676 7a7a78 7e7d78 838179 888578 8d8878 "
    "928c78 969077 9b9476 a09875 a59c74 aaa073 afa471 b5a86f baac6d bfb06b c4b468 c9b965 cfbd62 d4c15f dac65b "
    "dfca57 e5cf52 ead34c f0d846 f6dd3f fce236 fee838"
).split()


@cache
def static_files() -> Mapping[str, tuple[str, bytes]]:
    """Every file of the page by its name, with its media type: the whole table of what a server may give away."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in sorted(FOLDER.iterdir())}
    texts |= {"palette.css": _palette_css(), "palette.js": _palette_js()}
    return {name: (f"{MEDIA[Path(name).suffix]}; charset=utf-8", text.encode()) for name, text in texts.items()}


def page_file(recording: Mapping[str, Any]) -> str:
    """One self-contained HTML text that shows a recording, opens from disk and asks nobody for anything.

    recording   model, run, tensors, thumbnails, lens, decode, positions, contributions, shares: what the explorer's
                server answers, with tensors as {"shape", "axes", "dtype", "data": base64 of little-endian numbers}
    """
    texts = {name: content.decode() for name, (_, content) in static_files().items()}
    code = "".join(EXPORT.sub("", IMPORT.sub("", texts[name])) for name in _in_order(texts, "app.js"))
    data = json.dumps(recording, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(UNSAFE)
    title = escape(f"{recording['model']['name']} · clearhead")
    page = texts["index.html"]
    for tag, inlined in {
        "<title>clearhead</title>": f"<title>{title}</title>",
        '<link rel="stylesheet" href="static/palette.css">': f"<style>\n{texts['palette.css']}</style>",
        '<link rel="stylesheet" href="static/style.css">': f"<style>\n{texts['style.css']}</style>",
        '<script type="module" src="static/app.js"></script>': (
            f'<script type="application/json" id="recording">{data}</script>\n<script type="module">\n{code}</script>'
        ),
    }.items():
        before, found, after = page.partition(tag)
        assert found, tag
        page = before + inlined + after
    return page


def _in_order(texts: Mapping[str, str], last: str) -> list[str]:
    """Modules from the bottom up, each one after all that it imports."""
    done: dict[str, None] = {}

    def visit(name: str) -> None:
        if name not in done:
            for needed in IMPORT.findall(texts[name]):
                visit(needed)
            done[name] = None

    visit(last)
    return list(done)


def _theme(of: Theme) -> dict[str, str]:
    return {"paper": of.paper, "ink": of.ink, "faint": of.faint, "fill": of.fill}


def _palette_js() -> str:
    """The palette of the figures, for what the page paints itself."""
    palette = {
        "light": _theme(LIGHT),
        "dark": _theme(DARK),
        "roles": {name: {"letter": role.letter, "colour": role.colour} for name, role in ROLES.items()},
        "heads": HEADS,
        "sequential": [f"#{colour}" for colour in CIVIDIS],
        "diverging": [LOW, MIDDLE, HIGH],
        "glyphs": GLYPHS,
    }
    return f"export const PALETTE = {json.dumps(palette, indent=2, ensure_ascii=False)};\n"


def _palette_css() -> str:
    """The same for what the browser paints: roles and heads, and a ground that is light or dark."""
    fixed = {name: role.colour for name, role in ROLES.items()}
    fixed |= {f"head-{number}": colour for number, colour in enumerate(HEADS)}
    light = f"color-scheme: light; {_properties(_theme(LIGHT))}"
    dark = f"color-scheme: dark; {_properties(_theme(DARK))}"
    return (
        f":root {{ {_properties(fixed)} {light} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
        f':root[data-theme="light"] {{ {light} }}\n'
        f':root[data-theme="dark"] {{ {dark} }}\n'
        f"@media print {{ :root:root {{ {light} }} }}\n"
    )


def _properties(values: Mapping[str, str]) -> str:
    return " ".join(f"--{name}: {value};" for name, value in values.items())
