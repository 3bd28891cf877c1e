"""The explorer's addresses: each answers what the model computes, and what is not there is refused in a sentence."""

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from clearhead.tasks.contributions import contributions
from clearhead.tasks.inspecting import inspect, off_of
from clearhead.tasks.overview import overview
from clearhead.tasks.stepwise import Asking, step_by_step
from clearhead.tasks.viewing import Viewer
from clearhead.tasks.walk import cell_of
from tests.unit.tiny_viewers import MODES, TEXT, tiny_viewer

pytest.importorskip("fastapi")
httpx = pytest.importorskip("httpx")

from starlette.testclient import TestClient  # noqa: E402

from clearhead.serve.explorer import Bounds, explorer_app  # noqa: E402
from clearhead.serve.recordings import Recordings  # noqa: E402
from clearhead.tasks.cells import Place  # noqa: E402

HOME = "http://127.0.0.1:8765"


def client_of(viewer: Viewer, bounds: Bounds | None = None) -> TestClient:
    return TestClient(explorer_app(viewer, name="tiny", bounds=bounds), base_url=HOME)


@pytest.fixture(scope="module", params=MODES)
def viewer(request: pytest.FixtureRequest) -> Viewer:
    return tiny_viewer(request.param, seed=3, tied=request.param == "encoder")


@pytest.fixture(scope="module")
def client(viewer: Viewer) -> TestClient:
    return client_of(viewer)


def run(client: TestClient, **asked: Any) -> dict[str, Any]:
    answer = client.post("/api/runs", json={"text": TEXT, **asked})
    assert answer.status_code == 201, answer.text
    return answer.json()


def floats(answer: Any, kind: str = "<f4") -> NDArray[Any]:
    assert answer.status_code == 200, answer.text
    shape = [int(size) for size in answer.headers["X-Shape"].split(",")]
    return np.frombuffer(answer.content, kind).reshape(shape)


def refusal(answer: Any, status: int) -> str:
    assert answer.status_code == status, answer.text
    message: str = answer.json()["error"]["message"]
    assert message
    assert "Traceback" not in message
    return message


def test_the_model(client: TestClient, viewer: Viewer) -> None:
    assert client.get("/api/model").json() == overview(viewer, name="tiny")


def test_a_run_and_its_tensors(client: TestClient, viewer: Viewer) -> None:
    told = run(client)
    assert {name: value for name, value in told.items() if name != "id"} == inspect(viewer, TEXT).summary()
    view = viewer.view(TEXT)
    for one in told["attentions"]:
        for tap, axes in (("q", "HLK"), ("scores", "HLM"), ("masked", "HLM"), ("weights", "HLM"), ("output", "LD")):
            name = f"{one['name']}.{tap}"
            answer = client.get(f"/api/runs/{told['id']}/tensors/{name}")
            assert answer.headers["X-Axes"] == axes
            assert answer.headers["content-type"] == "application/octet-stream"
            expected = view.seen([name, "*.weights"])[name].tensor[0].numpy()
            assert answer.content == expected.astype("<f4").tobytes()
            assert floats(answer).shape == expected.shape
        head = client.get(f"/api/runs/{told['id']}/tensors/{one['name']}.weights?head=2")
        assert head.headers["X-Axes"] == "LM"
        whole = client.get(f"/api/runs/{told['id']}/tensors/{one['name']}.weights")
        assert np.array_equal(floats(head), floats(whole)[2])
        refusal(client.get(f"/api/runs/{told['id']}/tensors/{one['name']}.weights?head=4"), 400)
        refusal(client.get(f"/api/runs/{told['id']}/tensors/{one['name']}.output?head=0"), 400)
        refusal(client.get(f"/api/runs/{told['id']}/tensors/{one['name']}.bias"), 404)


def test_what_is_made_of_a_run(client: TestClient, viewer: Viewer) -> None:
    told, inspection = run(client), inspect(viewer, TEXT)
    at = f"/api/runs/{told['id']}"
    assert np.array_equal(floats(client.get(f"{at}/thumbnails?side=8"), "|u1"), inspection.thumbnails(8).numpy())
    assert client.get(f"{at}/lens?top=2").json() == inspection.lens(2)
    assert client.get(f"{at}/shares?position=0").json() == inspection.shares(0)
    assert client.get(f"{at}/shares?position=0&word=5&against=6").json() == inspection.shares(0, 5, 6)
    assert client.get(f"{at}/contributions").json() == contributions(inspection)
    for query in ("lens?top=0", "lens?top=99", "thumbnails?side=0", "thumbnails?side=9999", "shares?position=-1"):
        refusal(client.get(f"{at}/{query}"), 400)
    refusal(client.get(f"{at}/shares?position=77"), 400)
    refusal(client.get(f"{at}/shares?position=0&word=12345"), 400)


def test_cells_can_be_walked_to_the_end(client: TestClient, viewer: Viewer) -> None:
    told, inspection = run(client), inspect(viewer, TEXT)
    name = told["attentions"][-1]["name"]
    place: dict[str, Any] | None = {"tap": f"{name}.weights", "head": 1, "row": 0, "column": 0}
    walked = []
    while place is not None:
        asked = {key: value for key, value in place.items() if value is not None}
        cell = client.get(f"/api/runs/{told['id']}/cell", params=asked).json()
        expected = cell_of(inspection, Place(place["tap"], place["head"], place["row"], place["column"]))
        assert expected is not None
        assert cell == json.loads(json.dumps(expected.as_json()))
        tensor = floats(client.get(f"/api/runs/{told['id']}/tensors/{place['tap']}"))
        index = (place["row"], place["column"])
        found = float(tensor[index] if place["head"] is None else tensor[(place["head"], *index)])
        assert cell["value"] == pytest.approx(found, abs=1e-6)
        if cell["combine"] != "softmax":
            total = math.fsum(term["value"] for term in cell["terms"]) + (cell["rest"] or {"value": 0})["value"]
            assert total == pytest.approx(cell["value"], abs=1e-4)
        walked.append(place["tap"])
        came = [one for term in cell["terms"] for one in term["from"] or [] if one is not None]
        place = came[0] if came else None
    assert walked[-1].endswith("embed.tokens")
    at = f"/api/runs/{told['id']}/cell"
    refusal(client.get(at, params={"tap": "no.such", "row": 0, "column": 0}), 404)
    refusal(client.get(at, params={"tap": f"{name}.weights", "head": 0, "row": 99, "column": 0}), 400)
    refusal(client.get(at, params={"tap": f"{name}.weights", "head": 0, "row": -1, "column": 0}), 400)
    refusal(client.get(at, params={"tap": "x" * 300, "row": 0, "column": 0}), 400)


def test_masked_cells_are_valid_json() -> None:
    client = client_of(tiny_viewer("decoder"))
    at = f"/api/runs/{run(client)['id']}"
    masked = floats(client.get(f"{at}/tensors/decoder.0.attention.masked"))
    assert masked[0, 0, 1] == -np.inf
    cell = client.get(f"{at}/cell?tap=decoder.0.attention.masked&head=0&row=0&column=1").json()
    assert cell["value"] is None
    assert "hides" in cell["says"]


def test_positions(client: TestClient, viewer: Viewer) -> None:
    about = client.get("/api/positions?count=7").json()
    assert about["what"] == "table"
    assert floats(client.get("/api/positions/tensor?count=7")).shape == tuple(about["shape"]) == (7, 16)
    refusal(client.get("/api/positions?count=0"), 400)
    refusal(client.get("/api/positions?count=100000"), 400)
    nowhere = client_of(tiny_viewer("decoder", positions="none"))
    assert nowhere.get("/api/positions").json()["what"] == "none"
    refusal(nowhere.get("/api/positions/tensor"), 404)


def test_decoding(client: TestClient, viewer: Viewer) -> None:
    asked = {"text": TEXT, "longest": 4, "beams": 2, "top_k": 3, "temperature": 0.8}
    answer = client.post("/api/decode", json=asked)
    if viewer.mode == "encoder":
        assert "nothing to decode" in refusal(answer, 400)
        return
    expected = step_by_step(viewer, TEXT, Asking(longest=4, beams=2, top_k=3, temperature=0.8)).as_json()
    assert answer.json() == json.loads(json.dumps(expected))
    assert client.post("/api/decode", json={"text": TEXT}).json()["beam"] is None
    for wrong in (
        {"beams": 17}, {"beams": 0}, {"longest": 513}, {"temperature": 0}, {"temperature": -1}, {"top_p": 2},
        {"forced": [10**9]}, {"forced": ["x"]}, {"forced": [5] * 600}, {"unknown": 1}, {"off": {"nothing": [0]}},
    ):  # fmt: skip
        refusal(client.post("/api/decode", json={"text": TEXT, **wrong}), 400)
    refusal(client.post("/api/decode", content=b'{"text": "a", "temperature": NaN}'), 400)


def test_heads_that_are_off_change_what_is_said_and_on_again_nothing_is_left(viewer: Viewer) -> None:
    client = client_of(viewer)
    stack = "encoder" if viewer.mode == "encoder" else "decoder"
    off = {f"{stack}.0.attention": [0, 1, 2, 3], f"{stack}.1.attention": [0, 1, 2, 3]}
    whole, without, again = run(client), run(client, off=off), run(client)
    assert without["off"] == off

    def said(told: dict[str, Any]) -> Any:
        return told["answer"], told["predicts"], client.get(f"/api/runs/{told['id']}/lens").json()

    assert said(without) != said(whole)
    assert said(again) == said(whole)
    expected = inspect(viewer, TEXT, off=off_of(off))
    assert client.get(f"/api/runs/{without['id']}/lens").json() == expected.lens()
    heads = floats(client.get(f"/api/runs/{without['id']}/tensors/{stack}.0.attention.heads"))
    assert not heads.any()
    layer = run(client, layers_off=[f"{stack}.0"])
    assert layer["layers_off"] == [f"{stack}.0"]
    assert said(layer) != said(whole)
    refusal(client.post("/api/runs", json={"text": TEXT, "off": {f"{stack}.0.attention": [4]}}), 400)
    refusal(client.post("/api/runs", json={"text": TEXT, "layers_off": ["nothing.9"]}), 400)


def test_an_answer_can_be_forced() -> None:
    client = client_of(tiny_viewer("encoder-decoder"))
    told = run(client, answer="c b a")
    assert told["answer"] == "c b a"
    assert len(told["sides"]["target"]["tokens"]) == 4
    refusal(client_of(tiny_viewer("decoder")).post("/api/runs", json={"text": TEXT, "answer": "b"}), 400)


def test_importance_comes_when_it_is_asked_for(client: TestClient, viewer: Viewer) -> None:
    told = run(client, importance=True)["attentions"][0]["stats"]["importance"]
    assert told is None if viewer.mode == "encoder" else len(told) == 4


def test_recordings_are_given_up_the_oldest_first() -> None:
    client = client_of(tiny_viewer("decoder"), Bounds(recordings=2))
    ids = [run(client)["id"] for _ in range(3)]
    assert len({*ids}) == 3
    assert "run the text again" in refusal(client.get(f"/api/runs/{ids[0]}/lens"), 404)
    assert client.get(f"/api/runs/{ids[1]}/lens").status_code == 200
    run(client)
    refusal(client.get(f"/api/runs/{ids[2]}/lens"), 404)  # the other one was asked for since
    assert client.get(f"/api/runs/{ids[1]}/lens").status_code == 200


def test_recordings_keep_to_their_bytes() -> None:
    viewer = tiny_viewer("decoder")
    inspections = [inspect(viewer, TEXT) for _ in range(3)]
    for inspection in inspections:
        inspection.summary()
    each = inspections[0].nbytes
    recordings = Recordings(2 * each, 9)
    ids = [recordings.add(inspection) for inspection in inspections]
    assert [recordings.get(id) is not None for id in ids] == [False, True, True]
    inspections[2].at("decoder.0.attention.q")
    recordings.trim()
    assert len(recordings) == 1
    assert recordings.get(ids[2]) is inspections[2]
    small = Recordings(1, 9)
    id = small.add(inspections[0])
    assert small.nbytes == 0
    kept = small.get(id)
    assert kept is not None
    assert kept.at("decoder.0.attention.weights").shape == (4, 4, 4)


def test_the_page_and_its_files(client: TestClient) -> None:
    from clearhead.draw.page_file import static_files

    page = client.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff"
    for name, (media, content) in static_files().items():
        answer = client.get(f"/static/{name}")
        assert answer.headers["content-type"] == media
        assert answer.content == content
    assert client.get("/favicon.ico").status_code == 204


@pytest.mark.parametrize(
    "path",
    [
        "/static/../page_file.py", "/static/..%2fpage_file.py", "/static/%2e%2e/%2e%2e/errors.py", "/static/",
        "/static//etc/passwd", "/static/index.html%00.js", "/docs", "/openapi.json", "/api", "/api/runs",
        "/api/runs/x/tensors/../../model", "/api/runs/..%2f..%2fmodel/lens", "/%2e%2e/%2e%2e/etc/passwd",
    ],
)  # fmt: skip
def test_paths_lead_nowhere_else(client: TestClient, path: str) -> None:
    answer = client.build_request("GET", "/")
    answer.url = httpx.URL(HOME).copy_with(raw_path=path.encode())
    assert client.send(answer).status_code in {404, 405}


def test_names_of_taps_are_no_patterns(client: TestClient) -> None:
    id = run(client)["id"]
    for tap in ("*", "*.weights", "decoder.[0]", "..", "encoder.0@99.attention.q", "__class__", "x" * 5000, "é\u2028"):
        refusal(client.get(f"/api/runs/{id}/tensors/{tap}"), 404)
    refusal(client.get("/api/runs/unknown/tensors/decoder.0.attention.q"), 404)
    refusal(client.get("/api/runs/unknown/contributions"), 404)


def test_texts_are_bounded(client: TestClient) -> None:
    for text in ("a " * 100_000, "a " * 9_000):
        refusal(client.post("/api/runs", json={"text": text}), 400)
        refusal(client.post("/api/decode", json={"text": text}), 400)
    refusal(client.post("/api/runs", content=b'{"text": "' + b"a" * (2 << 20) + b'"}'), 413)
    refusal(client.post("/api/runs", content=b"{" * 100_000), 400)
    refusal(client.post("/api/runs", content=b"\xff\xfe"), 400)
    refusal(client.post("/api/runs", content=b'{"text": "\\ud800"}'), 400)
    refusal(client.post("/api/runs", json={"text": 5}), 400)
    refusal(client.post("/api/runs", json={}), 400)
    refusal(client.post("/api/runs", json={"text": TEXT, "off": {"x": list(range(5_000))}}), 400)
    assert client.get("/api/model").status_code == 200


def test_empty_and_odd_texts_are_read_or_refused(client: TestClient) -> None:
    for text in ("", " ", "\x00", "<script>alert(1)</script>", "\u202e\u2028", "zzz"):
        assert client.post("/api/runs", json={"text": text}).status_code in {201, 400}


def test_other_hosts_and_other_pages_are_refused(client: TestClient) -> None:
    refusal(client.get("/api/model", headers={"host": "evil.example"}), 421)
    refusal(client.post("/api/runs", json={"text": "a"}, headers={"origin": "http://evil.example"}), 403)
    assert client.post("/api/runs", json={"text": "a"}, headers={"origin": HOME}).status_code == 201


def test_requests_at_once_do_not_mix() -> None:
    from concurrent.futures import ThreadPoolExecutor

    torch.set_num_threads(1)
    client = client_of(tiny_viewer("decoder"))
    alone = {off: run(client, off={"decoder.0.attention": [off]})["predicts"] for off in range(4)}
    with ThreadPoolExecutor(8) as pool:
        asked = [number % 4 for number in range(24)]
        told = list(pool.map(lambda off: run(client, off={"decoder.0.attention": [off]})["predicts"], asked))
    assert told == [alone[off] for off in asked]
