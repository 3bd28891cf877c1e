"""Bodies of /translate: forms and parts as clients write them, what cannot be read, and the key before all else."""

import re
from collections.abc import Iterator

import pytest

from tests.unit.serving import House, Tiny, code, house

KEY = "first-secret-key"
UPLOAD = b'--x\r\nContent-Disposition: form-data; name="q"; filename="/etc/x"\r\n\r\na\r\n--x--'
ASKED = {"q": "a b", "source": "fr", "target": "en"}
PARTS = "multipart/form-data; boundary=x"


@pytest.fixture(scope="module")
def locked(models: Tiny) -> Iterator[House]:
    with house(models, keys=(KEY,)) as made:
        yield made


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        ("application/x-www-form-urlencoded", b"q=%ff&source=fr&target=en", 400),
        ("application/x-www-form-urlencoded", b"a=1&" * 2_000, 400),
        ("application/x-www-form-urlencoded", b"q=a&source=fr&source=de&target=en", 400),
        ("multipart/form-data", b"no boundary", 400),
        ("multipart/form-data; boundary=x", UPLOAD, 400),
        ("text/plain", b"q=a", 415),
    ],
)  # fmt: skip
def test_forms_that_cannot_be_read(server: House, kind: str, body: bytes, status: int) -> None:
    code(server.post("/translate", content=body, headers={"content-type": kind}), status)


def part(text: bytes, more: bytes = b"") -> bytes:
    return b'--x\r\nContent-Disposition: form-data; name="q"' + more + b"\r\n\r\n" + text + b"\r\n"


@pytest.mark.parametrize(
    "body",
    [
        part(b"a") * 1_001 + b"--x--",
        part(b"a", b"; a=b" * 300) + b"--x--",
        part(b"a", b"\r\nX-Long: " + b"a" * 2_000) + b"--x--",
        part(b"YQ==", b"\r\nContent-Transfer-Encoding: base64") + b"--x--",
        part(b"a"),
        part(b"\xff") + b"--x--",
        b"--x\r\n\r\na\r\n--x--",
        b"--xy\r\nContent-Disposition: form-data; name=q\r\n\r\na\r\n--x--",
    ],
    ids=["parts", "parameters", "header", "base64", "endless", "latin", "nameless", "another"],
)
def test_parts_that_cannot_be_read(server: House, body: bytes) -> None:
    assert code(server.post("/translate", content=body, headers={"content-type": PARTS}), 400) == "unreadable"


@pytest.mark.parametrize("text", ["a b", "", "a\r\nb\r\n", "--x\r\na", "\r\n\r\na", "é — \u2028", "a\r\n--x--y"])
def test_parts_are_read_to_the_letter(server: House, text: str) -> None:
    """What httpx writes as parts says what it says as JSON."""
    fields = {**ASKED, "q": text}
    answer = server.post("/translate", files={name: (None, value) for name, value in fields.items()})
    assert answer.status_code == 200
    assert answer.json() == server.post("/translate", fields).json()
    several = [("q", (None, text)), ("q", (None, "b")), ("model", (None, "demo"))]
    both = server.post("/translate", files=several).json()
    assert both == server.post("/translate", {"q": [text, "b"], "model": "demo"}).json()


@pytest.mark.parametrize(
    "kind", ['Multipart/Form-Data; charset=utf-8; Boundary="x"', "multipart/form-data;boundary=x; a=b"]
)
def test_parts_of_other_hands(server: House, kind: str) -> None:
    body = (
        b"to be ignored\r\n--x \r\ncontent-type: text/plain\r\nCONTENT-DISPOSITION:form-data;name=model\r\n\r\ndemo\r\n"
        + part(b"a b")
        + b"--x--\r\nand so is this"
    )
    answer = server.post("/translate", content=body, headers={"content-type": kind})
    assert answer.json() == server.post("/translate", {"q": "a b", "model": "demo"}).json()


@pytest.mark.parametrize(
    ("key", "body"),
    [
        ("wrong-key", b"[" * 5_000),
        (None, b'{"q": [0], "nobody": 1}'),
        (None, b'{"q": "a", "api_key": 1}'),
        (None, b"[]"),
    ],
)
def test_the_key_comes_before_the_rest(locked: House, key: str | None, body: bytes) -> None:
    headers = {"content-type": "application/json", **({"authorization": f"Bearer {key}"} if key else {})}
    assert code(locked.post("/translate", content=body, headers=headers), 401) == "wrong_api_key"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"q": "a", "source": "\\ud800", "target": "en"}', 400),
        (b'{"q": "a", "source": "fr", "target": "\\udfff"}', 400),
        (b'{"q": "a", "model": "\\ud800"}', 404),
    ],
)
def test_half_characters_are_told_in_whole_ones(server: House, body: bytes, status: int) -> None:
    answer = server.post("/translate", content=body, headers={"content-type": "application/json"})
    code(answer, status)
    assert re.search(r"\\ud[8f]", answer.json()["error"]["message"])


def test_half_characters_are_no_key(locked: House) -> None:
    body = b'{"q": "a", "api_key": "\\ud800"}'
    answer = locked.post("/translate", content=body, headers={"content-type": "application/json"})
    assert code(answer, 401) == "wrong_api_key"
