"""Decoding step by step: the words are those of plain decoding, and the tree is the record of the beam search."""

import math

import pytest
import torch

from clearhead.errors import DataError
from clearhead.generate.beam import beam
from clearhead.generate.decode import Prompts
from clearhead.generate.decoding import Decoding
from clearhead.generate.filters import narrowing
from clearhead.look.ablate import ablate
from clearhead.tasks.inspecting import off_of
from clearhead.tasks.stepwise import Asking, beam_nodes, step_by_step
from clearhead.tasks.translating import Sentence, Translating
from clearhead.tasks.viewing import Viewer, shown
from clearhead.tasks.writing import Writing
from tests.unit.tiny_viewers import TEXT, tiny_viewer


@pytest.fixture(scope="module", params=["encoder-decoder", "decoder"])
def viewer(request: pytest.FixtureRequest) -> Viewer:
    return tiny_viewer(request.param, seed=3, tied=False, scaled_embedding=True)


def logits_after(viewer: Viewer, written: list[int]) -> torch.Tensor:
    """What the model says next, in one whole pass."""
    with torch.no_grad():
        if viewer.mode == "decoder":
            return viewer.model(torch.tensor([[*viewer.parts.tokenizer.encode(TEXT), *written]]))[0, -1]
        frame = Translating([viewer.parts]).frame
        source = [*frame.before, *viewer.parts.tokenizer.encode(TEXT), *frame.after]
        return viewer.model(torch.tensor([source]), torch.tensor([[*frame.begin, *written]]))[0, -1]


def test_words_are_those_of_greedy_decoding(viewer: Viewer) -> None:
    told = step_by_step(viewer, TEXT, Asking(longest=6))
    ids: list[int] = []
    for step in told.steps:
        logits_V = logits_after(viewer, ids)
        assert step.id == int(logits_V.argmax()) == step.rivals[0].id
        assert not step.forced
        for rival in step.rivals:
            assert rival.logit == pytest.approx(float(logits_V[rival.id]), abs=1e-4)
            assert rival.probability == pytest.approx(float(logits_V.softmax(-1)[rival.id]), abs=1e-5)
            assert rival.kept
        ids.append(step.id)
    ends = {viewer.parts.settings.config.eos}
    assert told.ended == (ids[-1] in ends)
    assert told.answer == viewer.writer.decode(ids[:-1] if told.ended else ids)
    if viewer.mode == "decoder":
        (row,) = Writing(viewer.parts, {"longest": 6}).answers([viewer.parts.tokenizer.encode(TEXT)])
        assert row[0].text.strip() == told.answer.strip()
    else:
        working = Translating([viewer.parts])
        (found,) = working.decode([Sentence(TEXT)], working.request({"longest": 6, "beams": 1}))
        assert working.text(Sentence(TEXT), found.best[0]) == told.answer


def test_rivals_are_kept_by_the_filters_themselves(viewer: Viewer) -> None:
    asking = Asking(longest=2, temperature=0.7, top_k=4, top_p=0.9, min_p=0.05)
    told = step_by_step(viewer, TEXT, asking)
    scores_BV = logits_after(viewer, [])[None]
    for cut in narrowing(Decoding(temperature=0.7, top_k=4, top_p=0.9, min_p=0.05)):
        scores_BV = cut(scores_BV)
    probability_V = scores_BV[0].softmax(-1)
    for rival in told.steps[0].rivals:
        assert rival.scaled == pytest.approx(rival.logit / 0.7)
        assert rival.kept == bool(scores_BV[0, rival.id] > -math.inf)
        assert rival.probability == pytest.approx(float(probability_V[rival.id]), abs=1e-5)
    kept = sum(rival.kept for rival in told.steps[0].rivals)
    assert 1 <= kept <= 4


def test_forced_words_come_first_and_the_rest_follows_from_them(viewer: Viewer) -> None:
    first, second = (rival.id for rival in step_by_step(viewer, TEXT, Asking(longest=1)).steps[0].rivals[3:5])
    told = step_by_step(viewer, TEXT, Asking(forced=[first, second], longest=4))
    assert [step.forced for step in told.steps[:3]] == [True, True, False][: len(told.steps)]
    if len(told.steps) > 2:
        assert told.steps[2].id == int(logits_after(viewer, [first, second]).argmax())
    for asking in (Asking(forced=[999]), Asking(forced=[-1]), Asking(temperature=0.0)):
        with pytest.raises(DataError):
            step_by_step(viewer, TEXT, asking)


def test_the_tree_is_the_record_of_the_search(viewer: Viewer) -> None:
    told = step_by_step(viewer, TEXT, Asking(longest=5, beams=3))
    assert told.beam is not None
    if viewer.mode == "decoder":
        state, prompt = viewer.model.start(), viewer.parts.tokenizer.encode(TEXT)
    else:
        working = Translating([viewer.parts])
        state, prompt = working.start([viewer.parts.tokenizer.encode(TEXT)], room=9), list(working.frame.begin)
    eos = viewer.parts.settings.config.eos
    (found,) = beam(viewer.model, state, Prompts(torch.tensor([prompt]), [5], eos), decoding=Decoding(beams=3))
    every = [node for step in found.steps for node in step]
    nodes = told.beam.nodes
    assert [node.score for node in nodes] == pytest.approx([node.total for node in every], abs=1e-4)
    assert nodes == beam_nodes(found, {eos}, lambda id: shown(id, viewer.writer))
    assert viewer.writer.decode(found.best[0].tokens) == told.beam.answer
    winners = [node for node in nodes if node.winner]
    assert len(winners) == len(found.best[0].scores)
    assert winners[-1].score == pytest.approx(found.best[0].score, abs=1e-4)
    by_id = {node.id: node for node in nodes}
    for node in nodes:
        assert node.alive == (node.reason == "")
        if node.parent is not None:
            assert by_id[node.parent].alive
        assert node.alive or not any(other.parent == node.id for other in nodes)


def test_heads_that_are_off_are_off_while_decoding(viewer: Viewer) -> None:
    off = off_of({"decoder.0.attention": [0, 1, 2, 3]}, ["decoder.1"])
    told = step_by_step(viewer, TEXT, Asking(longest=1), off=off)
    with ablate(viewer.model, heads=off.heads, layers=off.layers):
        logits_V = logits_after(viewer, [])
    assert told.steps[0].rivals[0].logit == pytest.approx(float(logits_V.max()), abs=1e-4)
    whole = step_by_step(viewer, TEXT, Asking(longest=1))
    assert whole.steps[0].rivals[0].logit == pytest.approx(float(logits_after(viewer, []).max()), abs=1e-4)


def test_texts_without_room_and_encoders_are_refused() -> None:
    writer = tiny_viewer("decoder", length=6)
    with pytest.raises(DataError, match="shorten"):
        step_by_step(writer, "a b c d e f a b", Asking())
    assert len(step_by_step(writer, TEXT, Asking(longest=40)).steps) <= 3
    with pytest.raises(DataError, match="force fewer"):
        step_by_step(writer, TEXT, Asking(forced=[5, 5, 5]))
    with pytest.raises(DataError, match="nothing to decode"):
        step_by_step(tiny_viewer("encoder"), TEXT, Asking())
