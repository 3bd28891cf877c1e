"""Every address of the server, against the same models without one."""

import asyncio
import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from clearhead.serve.encoders import ServedTable
from clearhead.serve.limits import Limits
from clearhead.serve.models import load_models, wanted
from clearhead.serve.work import Budget
from clearhead.tasks.language_model import LanguageModel
from tests.unit.serving import Gate, House, Tiny, house, within
from tests.unit.small_tables import frame

ROWS: list[dict[str, Any]] = [
    {"a": 0.5, "b": 7, "c": "up", "d": "p"},
    {"a": -2.0, "b": None, "c": "down", "d": "r"},
]


def refusal(answer: httpx.Response, status: int) -> str:
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "code"}
    return str(error["message"])


def events(answer: httpx.Response) -> list[Any]:
    assert answer.headers["content-type"].startswith("text/event-stream")
    *parts, done, nothing = answer.text.split("\n\n")
    assert (done, nothing) == ("data: [DONE]", "")
    return [json.loads(part.removeprefix("data: ")) for part in parts]


def test_status(server: House) -> None:
    assert server.get("/health").json() == {"status": "alive"}
    assert server.get("/ready").json() == {"status": "ready"}
    server.get("/nothing")
    text = server.get("/metrics").text
    assert 'clearhead_requests_total{path="other",status="404"}' in text
    assert 'clearhead_request_seconds_bucket{path="/health",le="+Inf"}' in text
    assert 'clearhead_waiting{model="gpt"} 0' in text


def test_models(server: House) -> None:
    listed = server.get("/v1/models").json()
    assert [one["id"] for one in listed["data"]] == ["demo", "gpt", "bert", "classes", "numbers"]
    assert server.get("/v1/models/gpt").json() == next(one for one in listed["data"] if one["id"] == "gpt")
    assert "no model 'nobody'" in refusal(server.get("/v1/models/nobody"), 404)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.8, "seed": 3},
        {"temperature": 1.5, "seed": 4, "top_p": 0.7, "top_k": 9, "min_p": 0.01},
        {"stop": ["a", "th"], "temperature": 1.0, "seed": 1},
        {"repetition_penalty": 1.3},
    ],
)
def test_completions(models: Tiny, server: House, options: dict[str, Any]) -> None:
    prompts = ["the cat", "a mat", "on"]
    body = {"model": "gpt", "prompt": prompts, "max_tokens": 12, **options}
    answer = server.post("/v1/completions", body).json()
    assert [one["text"] for one in answer["choices"]] == models.writer.generate(prompts, longest=12, **options)
    assert answer["usage"]["prompt_tokens"] == sum(map(len, prompts))
    assert answer["usage"]["total_tokens"] == sum(v for k, v in answer["usage"].items() if k != "total_tokens")
    streamed = ["", "", ""]
    for event in events(server.post("/v1/completions", {**body, "stream": True})):
        streamed[event["choices"][0]["index"]] += event["choices"][0]["text"]
    assert streamed == [one["text"] for one in answer["choices"]]


def test_several_answers_are_drawn_as_without_a_server(models: Tiny, server: House) -> None:
    body = {"model": "gpt", "prompt": "the", "max_tokens": 8, "n": 3, "temperature": 1.0, "seed": 5}
    choices = server.post("/v1/completions", body).json()["choices"]
    alone = models.writer.answers(["the"], longest=8, best=3, temperature=1.0, seed=5)[0]
    assert sorted(one["text"] for one in choices) == sorted(one.text for one in alone)
    assert [one["index"] for one in choices] == [0, 1, 2]


def with_usual(models: Tiny, **generation: Any) -> Tiny:
    """The same models; what its directory says is usual for the language model is this."""
    parts = models.writer.parts
    return replace(
        models, writer=LanguageModel(replace(parts, settings=replace(parts.settings, generation=generation)))
    )


@pytest.mark.parametrize("usual", [{"temperature": 0.7}, {"num_beams": 3}], ids=str)
def test_one_answer_is_one_whatever_is_usual_for_the_model(models: Tiny, usual: dict[str, Any]) -> None:
    prompts = ["the cat", "a mat"]
    said = models.writer.generate(prompts, longest=6, seed=3, **usual)
    alone = [prompt + text for prompt, text in zip(prompts, said, strict=True)]
    body = {"model": "gpt", "prompt": prompts, "max_tokens": 6, "seed": 3, "echo": True}
    with house(with_usual(models, num_return_sequences=2, **usual)) as made:
        assert [one["text"] for one in made.post("/v1/completions", body).json()["choices"]] == alone
        streamed = ["", ""]
        for event in events(made.post("/v1/completions", {**body, "stream": True})):
            streamed[event["choices"][0]["index"]] += event["choices"][0]["text"]
        assert streamed == alone


def test_several_answers_of_a_model_that_draws_as_a_rule(models: Tiny) -> None:
    body = {"model": "gpt", "prompt": "the", "max_tokens": 8, "n": 2, "seed": 5}
    (alone,) = models.writer.answers(["the"], longest=8, best=2, temperature=0.7, seed=5)
    with house(with_usual(models, temperature=0.7)) as made:
        choices = made.post("/v1/completions", body).json()["choices"]
        assert sorted(one["text"] for one in choices) == sorted(one.text for one in alone)
        refused = made.post("/v1/completions", {**body, "temperature": 0, "stream": True})
        assert "temperature must be above 0" in refusal(refused, 400)


def test_what_is_drawn_without_a_seed_differs(server: House) -> None:
    body = {"model": "gpt", "prompt": "the", "max_tokens": 20, "temperature": 2.0}
    assert len({server.post("/v1/completions", body).json()["choices"][0]["text"] for _ in range(4)}) > 1


def test_log_probabilities_and_echo(models: Tiny, server: House) -> None:
    body = {"model": "gpt", "prompt": "the cat", "max_tokens": 5, "logprobs": 2}
    choice = server.post("/v1/completions", body).json()["choices"][0]
    alone = models.writer.answers(["the cat"], longest=5)[0][0]
    told = choice["logprobs"]
    assert told["tokens"] == list(alone.tokens[: len(told["tokens"])])
    assert told["token_logprobs"] == pytest.approx(alone.scores[: len(told["tokens"])], abs=1e-4)
    for token, score, rivals in zip(told["tokens"], told["token_logprobs"], told["top_logprobs"], strict=True):
        assert rivals[token] == pytest.approx(score, abs=1e-4)
        assert len(rivals) == 2
        assert max(rivals.values()) == rivals[token]
    lengths = [0 if token.startswith("<") else len(token) for token in told["tokens"]]
    assert told["text_offset"] == [sum(lengths[:place]) for place in range(len(lengths))]
    echoed = server.post("/v1/completions", {"model": "gpt", "prompt": "the cat", "max_tokens": 5, "echo": True})
    assert echoed.json()["choices"][0]["text"] == "the cat" + choice["text"]


def test_finish_reasons(models: Tiny, server: House) -> None:
    body = {"model": "gpt", "prompt": "the", "max_tokens": 10}
    whole = server.post("/v1/completions", body).json()["choices"][0]
    assert whole["finish_reason"] == "length"
    stop = whole["text"][3:5]
    cut = server.post("/v1/completions", {**body, "stop": stop}).json()["choices"][0]
    assert (cut["text"], cut["finish_reason"]) == (whole["text"][: whole["text"].index(stop)], "stop")
    last = events(server.post("/v1/completions", {**body, "stop": stop, "stream": True}))[-1]
    assert last["choices"][0]["finish_reason"] == "stop"


def test_chat(models: Tiny, server: House) -> None:
    messages = [{"role": "user", "content": "the cat"}, {"role": "user", "content": [{"type": "text", "text": "sat"}]}]
    plain = [{"role": "user", "content": "the cat"}, {"role": "user", "content": "sat"}]
    body = {"model": "gpt", "messages": messages, "max_tokens": 9, "logprobs": True, "top_logprobs": 2}
    answer = server.post("/v1/chat/completions", body).json()
    message = answer["choices"][0]["message"]
    assert message == {"role": "assistant", "content": models.writer.chat(plain, longest=9)}
    assert len(answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]) == 2
    assert answer["object"] == "chat.completion"
    streamed = events(
        server.post("/v1/chat/completions", {**body, "stream": True, "stream_options": {"include_usage": True}})
    )
    deltas = [event["choices"][0]["delta"] for event in streamed if event["choices"]]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(delta.get("content", "") for delta in deltas) == "".join(models.writer.stream_chat(plain, longest=9))
    assert streamed[-1]["usage"] == answer["usage"]
    assert {event["object"] for event in streamed} == {"chat.completion.chunk"}


def test_a_model_without_a_template_does_not_chat(models: Tiny) -> None:
    mute = replace(models, writer=LanguageModel(replace(models.writer.parts, chat=None)))
    body = {"model": "gpt", "messages": [{"role": "user", "content": "hello"}]}
    with house(mute) as made:
        assert "no chat template" in refusal(made.post("/v1/chat/completions", body), 400)


def test_embeddings(models: Tiny, server: House) -> None:
    texts = ["a b", "c", "d d a"]
    expected = models.encoder.encode(texts)
    plain = server.post("/v1/embeddings", {"model": "bert", "input": texts}).json()
    np.testing.assert_allclose([one["embedding"] for one in plain["data"]], expected, atol=1e-5)
    coded = server.post("/v1/embeddings", {"model": "bert", "input": "a b", "encoding_format": "base64"}).json()
    vector = np.frombuffer(base64.b64decode(coded["data"][0]["embedding"]), "<f4")
    np.testing.assert_allclose(vector, expected[0], atol=1e-5)
    assert plain["usage"]["prompt_tokens"] == plain["usage"]["total_tokens"] == 6
    wrong = {"model": "bert", "input": "a", "dimensions": 7}
    assert "have 32 numbers" in refusal(server.post("/v1/embeddings", wrong), 400)


@pytest.mark.parametrize("how", ["json", "data", "files"])
def test_translate(models: Tiny, server: House, how: str) -> None:
    fields = {"q": "a b.\nc d e.", "source": "fr", "target": "en"}
    given: dict[str, Any] = {k: (None, v) for k, v in fields.items()} if how == "files" else fields
    answer = server.post("/translate", **{how: given})
    assert answer.json() == {"translatedText": models.translator.translate("a b.\nc d e.")}


def test_translate_lists_and_alternatives(models: Tiny, server: House) -> None:
    texts = ["a b c", "  d.\ne f .\n\n a", ""]
    body = {"q": texts, "source": "auto", "target": "en"}
    assert server.post("/translate", body).json() == {"translatedText": models.translator.translate(texts)}
    found = [[one.text for one in best] for best in models.translator.answers(texts, beams=3, best=3)]
    answer = server.post("/translate", {**body, "alternatives": 2}).json()
    assert answer["translatedText"] == [best[0] for best in found]
    assert answer["alternatives"] == [best[1:] for best in found]
    single = server.post("/translate", {"q": "a b c", "model": "demo", "alternatives": 2}).json()
    assert single == {"translatedText": found[0][0], "alternatives": found[0][1:]}


@pytest.mark.parametrize("alternatives", [0, 2])
def test_a_sentence_has_its_limits(models: Tiny, alternatives: int) -> None:
    """Not more is read than one step may have, and not more is written than an answer may have, also in a search."""
    beams = {"beams": alternatives + 1, "best": alternatives + 1}
    body = {"model": "demo", "alternatives": alternatives}
    with house(models, budget=Budget(tokens=8), limits=Limits(tokens=3)) as made:
        long = made.post("/translate", {**body, "q": ["a", "a b c d e f a b c"]})
        assert "a sentence has 9 tokens, and at most 8" in refusal(long, 400)
        found = made.post("/translate", {**body, "q": "a b c d e f a b"}).json()
    (answers,) = models.translator.answers(["a b c d e f a b"], longest=3, **beams)
    assert [found["translatedText"], *found.get("alternatives", [])] == [one.text for one in answers]
    assert max(len(one.tokens) for one in answers) == 3


def test_languages(server: House) -> None:
    assert server.get("/languages").json() == [{"code": "fr", "name": "French", "targets": ["en"]}]


def test_tables(models: Tiny, server: House) -> None:
    rows, _ = frame(48)
    some = json.loads(rows.head(5).to_json(orient="records"))
    answer = server.post("/v1/tables/classes/predict", {"rows": some}).json()
    assert answer["predictions"] == models.classes.predict(rows.head(5)).tolist()
    told = [[row[name] for name in ("no", "yes")] for row in answer["probabilities"]]
    np.testing.assert_allclose(told, models.classes.predict_proba(rows.head(5)), atol=1e-6)
    numbers = server.post("/v1/tables/numbers/predict", {"rows": some}).json()
    np.testing.assert_allclose(numbers["predictions"], models.numbers.predict(rows.head(5)), atol=1e-6)
    assert "probabilities" not in numbers


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/v1/completions", {"model": "nobody", "prompt": "a"}, 404, "no model 'nobody'"),
        ("/v1/completions", {"model": "demo", "prompt": "a"}, 400, "demo is a translator: ask it at /translate"),
        ("/v1/completions", {"model": "gpt"}, 400, "prompt: field required"),
        ("/v1/completions", {"model": "gpt", "prompt": []}, 400, "at least one text"),
        ("/v1/completions", {"model": "gpt", "prompt": "a", "tempreature": 1}, 400, "tempreature"),
        ("/v1/completions", {"model": "gpt", "prompt": "a", "max_tokens": 2000}, 400, "at most 1,024 tokens"),
        ("/v1/completions", {"model": "gpt", "prompt": "a", "max_tokens": 100}, 400, "positions for 64"),
        ("/v1/completions", {"model": "gpt", "prompt": "a", "n": 9, "temperature": 1}, 400, "at most 8 answers"),
        ("/v1/completions", {"model": "gpt", "prompt": "a", "n": 2}, 400, "temperature must be above 0"),
        ("/v1/completions", {"model": "gpt", "prompt": "a", "stop": ""}, 400, "at least one character"),
        ("/v1/completions", {"model": "gpt", "prompt": ["a"] * 300}, 400, "at most 256 texts"),
        ("/v1/completions", {"model": "gpt", "prompt": "a" * 100_001}, 400, "at most 100,000 characters"),
        ("/v1/completions", {"model": "gpt", "prompt": "a", "echo": True, "logprobs": 1}, 400, "leave out echo"),
        ("/v1/chat/completions", {"model": "gpt", "messages": []}, 400, "messages"),
        ("/v1/embeddings", {"model": "gpt", "input": "a"}, 400, "gpt is a language model"),
        ("/translate", {"q": "a", "source": "de", "target": "en"}, 400, "does not translate de into en"),
        ("/translate", {"q": "a", "source": "fr"}, 400, "target is missing"),
        ("/translate", {"q": "a", "source": "fr", "target": "en", "format": "html"}, 400, "format"),
        ("/translate", {"q": "a", "source": "fr", "target": "en", "alternatives": 8}, 400, "at most 8 translations"),
        ("/translate", {"q": "a.\n" * 600, "source": "fr", "target": "en"}, 400, "at most 512 sentences"),
        ("/translate", [1], 400, "the body"),
        ("/v1/tables/classes/predict", {"rows": [{"a": 1}]}, 400, "row 0 has no column 'b'"),
        ("/v1/tables/classes/predict", {"rows": [{**ROWS[0], "z": 1}]}, 400, "column 'z'"),
        ("/v1/tables/classes/predict", {"rows": [{**ROWS[0], "a": "many"}]}, 400, "many"),
        ("/v1/tables/gpt/predict", {"rows": ROWS}, 400, "gpt is a language model"),
        ("/v1/completions", None, 405, "method"),
        ("/nowhere", {}, 404, "nothing at this address"),
    ],
)
def test_refusals(server: House, path: str, body: Any, status: int, message: str) -> None:
    answer = server.get(path) if body is None else server.post(path, body)
    assert message in refusal(answer, status)


def test_missing_values_of_tables(models: Tiny, server: House) -> None:
    assert len(server.post("/v1/tables/classes/predict", {"rows": ROWS}).json()["predictions"]) == 2


def test_requests_at_the_same_time_get_their_own_answers(models: Tiny, server: House) -> None:
    """All kinds at once, each as it would be alone."""
    bodies: list[tuple[str, dict[str, Any], Any]] = []
    for seed, text in enumerate(["the", "cat", "sat on", "mat", "a", "th"]):
        options = [{}, {"temperature": 1.0, "seed": seed}, {"stop": "a", "temperature": 0.7, "seed": seed}][seed % 3]
        alone = models.writer.generate(text, longest=10 + seed, **options)
        bodies.append(("/v1/completions", {"model": "gpt", "prompt": text, "max_tokens": 10 + seed, **options}, alone))
    for number, text in enumerate(["a b", "c.\nd e f.", "f e d c b a", "b", "a a a. b"]):
        best = [one.text for one in models.translator.answers([text], beams=2, best=2)[0]]
        beams = {"translatedText": best[0], "alternatives": best[1:]}
        greedy = {"translatedText": models.translator.translate(text)}
        body = {"q": text, "source": "fr", "target": "en", "alternatives": number % 2}
        bodies.append(("/translate", body, beams if number % 2 else greedy))

    async def all_at_once(client: httpx.AsyncClient) -> list[httpx.Response]:
        return await asyncio.gather(*(client.post(path, json=body) for path, body, _ in bodies * 3))

    for answer, (path, _, expected) in zip(server.call(all_at_once), bodies * 3, strict=True):
        told = answer.json()
        assert (told["choices"][0]["text"] if path == "/v1/completions" else told) == expected


def test_models_of_folders(models: Tiny, tmp_path: Path) -> None:
    """Whatever a model directory holds is served as what it is."""
    for name in ("translator", "writer", "encoder", "classes", "numbers"):
        getattr(models, name).save_pretrained(tmp_path / name)
    each = [wanted(str(tmp_path / name)) for name in ("translator", "writer", "classes", "numbers")]
    loaded = load_models([*each, wanted(f"vectors={tmp_path / 'encoder'}")], Budget(), Limits())
    try:
        assert {one.name: one.TASK for one in loaded} == {
            "translator": "translation",
            "writer": "language_model",
            "classes": "table",
            "numbers": "table",
            "vectors": "sentence_encoder",
        }
        rows = asyncio.run(loaded.pick("classes", ServedTable).predict(ROWS)).values
        assert rows == models.classes.predict({name: [row[name] for row in ROWS] for name in ROWS[0]}).tolist()
    finally:
        loaded.close()


def test_the_deadline(models: Tiny) -> None:
    with house(models, limits=Limits(deadline=0.05)) as made:
        engine = made.models.by_name["gpt"].engine
        engine._running.model = gate = Gate(models.writer.model)
        body = {"model": "gpt", "prompt": "the", "max_tokens": 20}
        assert "no answer within 0.05 seconds" in refusal(made.post("/v1/completions", body), 504)
        streamed = made.post("/v1/completions", {**body, "stream": True}).text
        assert json.loads(streamed.removeprefix("data: "))["error"]["code"] == "deadline"
        gate.open.set()
        within(lambda: engine.running == engine.waiting == 0)
        assert len(gate.rows) < 10  # what nobody waits for is not written
