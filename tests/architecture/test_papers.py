"""Every paper that the code or the documents cite by key is in `docs/papers.bib`, in full."""

import re

from tests.architecture.sources import ROOT, python_files

KEY = re.compile(r"\b[a-z]{2,}(?:19|20)\d\d(?:[a-z]+)?\b")
ENTRY = re.compile(r"^@(\w+)\{(\w+),\n(.*?)^\}", flags=re.MULTILINE | re.DOTALL)
VENUE = {"article": "journal", "inproceedings": "booktitle", "techreport": "institution", "misc": "eprint"}

BIBLIOGRAPHY = (ROOT / "docs" / "papers.bib").read_text(encoding="utf-8")


def entries(bibliography: str) -> list[tuple[str, str, set[str]]]:
    """Kind, key and names of the fields of each entry."""
    return [
        (kind, key, set(re.findall(r"^\s*(\w+)\s*=\s*\{", body, flags=re.MULTILINE)))
        for kind, key, body in ENTRY.findall(bibliography)
    ]


def incomplete(bibliography: str) -> list[str]:
    return [
        key for kind, key, fields in entries(bibliography) if not {"author", "title", "year", VENUE[kind]} <= fields
    ]


def test_every_cited_key_is_there() -> None:
    texts = [*python_files("src", "examples", "benchmarks"), *(ROOT / "docs").glob("*.md")]
    cited = {key: path.name for path in texts for key in KEY.findall(path.read_text(encoding="utf-8"))}
    known = {key for _, key, _ in entries(BIBLIOGRAPHY)}
    assert {key: where for key, where in cited.items() if key not in known} == {}


def test_entries_are_complete_and_unique() -> None:
    keys = [key for _, key, _ in entries(BIBLIOGRAPHY)]
    assert len(keys) == BIBLIOGRAPHY.count("\n@"), "an entry that does not parse"
    assert len(keys) == len(set(keys))
    assert incomplete(BIBLIOGRAPHY) == []


def test_a_slip_would_be_found() -> None:
    assert KEY.findall("# DIFF[vaswani2017 §3.1]: as in huang2020tfixup, 2017, x_BLD, Shaw 2018") == [
        "vaswani2017",
        "huang2020tfixup",
    ]
    whole = "@misc{a2020,\n  author = {A},\n  title = {B},\n  year = {2020},\n  eprint = {1}\n}\n"
    assert incomplete(whole) == []
    assert incomplete(whole.replace("author", "editor")) == ["a2020"]
