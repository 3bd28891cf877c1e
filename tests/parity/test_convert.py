"""Every architecture of `transformers` that we read: their weights here, ours there, and the same answers."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from clearhead.convert.families import FAMILIES
from clearhead.convert.load import model_of
from clearhead.errors import CheckpointError
from clearhead.generate.decode import Prompts
from clearhead.generate.decoding import Decoding
from clearhead.generate.write import search
from clearhead.models.encoder_decoder import EncoderDecoder

pytest.importorskip("transformers")

import transformers as hf

from tests.parity.borrowed import ours_of, shake
from tests.parity.their_models import (
    CASES,
    GENERATING,
    SOURCE,
    SOURCE_COUNTS,
    TOKENS,
    our_answers,
    real,
    their_answers,
)

pytestmark = pytest.mark.filterwarnings("ignore")  # of theirs
STEPS = 50


class Models:
    """Theirs and the same as ours, read from the folder that they write; each made once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made: dict[str, tuple[Any, Any]] = {}

    def __call__(self, name: str) -> tuple[Any, Any]:
        if name not in self.made:
            torch.manual_seed(list(CASES).index(name))
            theirs = CASES[name]().eval()
            shake(theirs, 0.2)
            theirs.save_pretrained(self.folder / name)
            self.made[name] = theirs, ours_of(*opened(self.folder / name))
        return self.made[name]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    hf.utils.logging.set_verbosity_error()
    hf.utils.logging.disable_progress_bar()
    return Models(tmp_path_factory.mktemp("theirs"))


def opened(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    return json.loads((folder / "config.json").read_text()), load_file(folder / "model.safetensors")


def there(ours: Any, model_type: str, folder: Path) -> Any:
    """Our model as a folder, opened by them: everything that they want is there, and nothing else."""
    family, config = FAMILIES[model_type], FAMILIES[model_type].write(ours.config)
    tensors = {name: tensor.clone() for name, tensor in family.tensors(ours, ours.config).items()}
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    model, said = getattr(hf, config["architectures"][0]).from_pretrained(folder, output_loading_info=True)
    assert not any(said[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")), said
    return model.eval()


def same(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    for name, answer in ours.items():
        close(answer, theirs[name], name)


def close(ours: Tensor, theirs: Tensor, name: str = "logits") -> None:
    """Within 1e-5, of the largest number where that is above 1: theirs err by as much beside their own in float64."""
    atol = 1e-5 * max(1.0, float(theirs.abs().max()))
    torch.testing.assert_close(ours, theirs, atol=atol, rtol=1e-5, msg=lambda said: f"{name}: {said}")


@pytest.mark.parametrize("name", CASES)
def test_theirs_answer_the_same_here(models: Models, name: str) -> None:
    theirs, ours = models(name)
    same(our_answers(ours), their_answers(theirs))


@pytest.mark.parametrize("name", CASES)
def test_what_they_hold_in_memory_is_read_too(models: Models, name: str) -> None:
    """Tied tensors under all their names, and what they do not save."""
    theirs, ours = models(name)
    config = theirs.config.to_dict() | {"architectures": [type(theirs).__name__]}
    again = ours_of(config, theirs.state_dict())
    assert again.config == ours.config
    assert all(map(torch.equal, ours.state_dict().values(), again.state_dict().values()))


def test_a_classifier_of_images_pays_no_heed_to_a_pooler_in_its_file(models: Models) -> None:
    """As checkpoints of the body have one, to which a classifier was added later."""
    theirs, ours = models("vit")
    body = CASES["vit body"]().state_dict()
    pooler = {f"vit.{name}": body[name] for name in body if name.startswith("pooler.")}
    again = ours_of(theirs.config.to_dict(), theirs.state_dict() | pooler)
    assert again.config == ours.config
    same(our_answers(again), their_answers(theirs))


@pytest.mark.parametrize("name", CASES)
def test_what_is_said_to_be_one_and_lies_there_as_two_is_refused(models: Models, name: str, tmp_path: Path) -> None:
    """They would use both."""
    theirs, _ = models(name)
    tied, tensors = theirs.all_tied_weights_keys, theirs.state_dict()
    assert tied.items() <= {*FAMILIES[theirs.config.model_type].twins}
    told = {**theirs.config.to_dict(), "architectures": [type(theirs).__name__]}
    assert model_of(told, tensors, source=tmp_path)
    for twin, of in tied.items():
        if not torch.equal(tensors[twin], tensors[of]):  # T5 v1.1, which is known to have two
            continue
        with pytest.raises(CheckpointError, match=f"two different tensors '{twin}'"):
            model_of(told, {**tensors, twin: tensors[twin] + 0.1}, source=tmp_path)


def test_they_use_both(models: Models, tmp_path: Path) -> None:
    """Two matrices in a file make two matrices there, whatever its config says."""
    theirs, _ = models("gpt2")
    theirs.config.save_pretrained(tmp_path)
    tensors = {name: tensor.clone() for name, tensor in theirs.state_dict().items()}
    save_file(
        {**tensors, "lm_head.weight": -tensors["lm_head.weight"]}, tmp_path / "model.safetensors", {"format": "pt"}
    )
    both = hf.GPT2LMHeadModel.from_pretrained(tmp_path).eval()
    close(both(TOKENS).logits, -theirs(TOKENS).logits)


@pytest.mark.parametrize("name", CASES)
def test_ours_answer_the_same_there(models: Models, name: str, tmp_path: Path) -> None:
    theirs, ours = models(name)
    back = there(ours, theirs.config.model_type, tmp_path / "back")
    same(our_answers(ours), their_answers(back))
    assert ours_of(*opened(tmp_path / "back")).config == ours.config


@pytest.mark.parametrize("name", GENERATING)
@torch.no_grad()
def test_steps_are_their_whole_pass(models: Models, name: str) -> None:
    theirs, ours = models(name)
    if isinstance(ours, EncoderDecoder):
        source = {"input_ids": SOURCE, "attention_mask": real(SOURCE_COUNTS, SOURCE.shape[1])}
        expected, state = theirs(**source, decoder_input_ids=TOKENS).logits, ours.start(SOURCE, SOURCE_COUNTS)
    else:
        expected, state = theirs(TOKENS).logits, ours.start()
    row, begun = torch.arange(len(TOKENS)), torch.tensor([3, 1, 2])  # beginnings of different lengths
    logits, state = ours.step(TOKENS[:, :3], state, count_B=begun, last=True)
    close(logits[:, 0], expected[row, begun - 1])
    for i in range(4):
        logits, state = ours.step(TOKENS[row, begun + i][:, None], state)
        close(logits[:, 0], expected[row, begun + i])


@pytest.mark.parametrize("name", GENERATING)
def test_greedy_decoding_writes_the_same(models: Models, name: str) -> None:
    """No pair of tokens twice: random models would write the same one for ever."""
    theirs, ours = models(name)
    theirs.generation_config.eos_token_id = None  # all steps, whatever is written
    if isinstance(ours, EncoderDecoder):
        given, prompt = SOURCE[1:2], torch.tensor([[ours.config.bos]])
        state = ours.start(given)
    else:
        given, prompt, state = TOKENS[2:3], TOKENS[2:3], ours.start()
    options = {"max_new_tokens": STEPS, "no_repeat_ngram_size": 2, "do_sample": False}
    written = theirs.generate(given, attention_mask=torch.ones_like(given), **options)
    (found,) = search(ours, state, Prompts(prompt, [STEPS], None), Decoding(longest=STEPS, no_repeat=2))
    assert len(found.best[0].tokens) == STEPS
    assert found.best[0].tokens == written[0, prompt.shape[1] :].tolist()
