"""Others' models can be looked into like ours: every number that is read off them is made of its terms."""

import pytest
import torch

from clearhead.data.tokenizers import Tokenizer
from clearhead.tasks.directory import ModelParts, Settings
from clearhead.tasks.encoder_data import SPECIALS
from clearhead.tasks.inspecting import inspect
from clearhead.tasks.stepwise import Asking, step_by_step
from clearhead.tasks.viewing import Viewer
from clearhead.tasks.walk import Walk
from tests.unit.test_inspecting_cells import NOT_TAKEN_APART, check, some_places

pytest.importorskip("transformers")

from tests.parity.borrowed import ours_of, shake
from tests.parity.their_models import CASES, EOS

pytestmark = pytest.mark.filterwarnings("ignore")  # of theirs

NAMES = ["gpt2", "llama grouped", "llama 3", "mistral", "qwen2", "bert", "bert words", "roberta words",
         "distilbert words", "albert words", "albert classes", "marian", "marian apart", "pegasus", "bart", "t5",
         "t5 v1.1"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_cells_of_others_models(name: str) -> None:
    torch.manual_seed(0)
    theirs = CASES[name]().eval()
    shake(theirs)
    model = ours_of(theirs.config.to_dict(), theirs.state_dict())
    specials = SPECIALS if hasattr(model, "encoder") and not hasattr(model, "decoder") else ("<unk>", "<bos>", "<eos>")
    tokenizer = Tokenizer.train("word", ["a b c d e f g h"] * 2, 20, specials=specials)
    assert tokenizer.eos in (EOS, None)
    settings = Settings("", model.config, generation={"longest": 5} if hasattr(model, "decoder") else {})
    viewer = Viewer(ModelParts(model, tokenizer, settings))
    inspection = inspect(viewer, "a b a c")
    inspection.summary()
    walk = Walk(inspection)
    for place in some_places(walk, 1):
        assert NOT_TAKEN_APART not in check(walk, place).made.says
    if viewer.mode != "encoder":
        assert step_by_step(viewer, "a b a c", Asking(longest=3, beams=2)).steps
