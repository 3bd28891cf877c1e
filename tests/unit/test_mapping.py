"""Maps of tensors: every layout there and back, each tensor read once, and all that does not fit told at once."""

from collections.abc import Iterator, Mapping

import pytest
import torch
from torch import Tensor, nn

from clearhead.convert.families import FAMILIES
from clearhead.convert.family import Family
from clearhead.convert.mapping import Row, fill, fit, layer, spill
from clearhead.errors import CheckpointError
from clearhead.models.decoder_only import DecoderOnly, DecoderOnlyConfig
from clearhead.models.presets import build


class Parts(nn.Module):
    """A matrix of two stacked ones, one that lies the other way, a table with unused rows, a row of its own, a pair."""

    def __init__(self) -> None:
        super().__init__()
        self.stacked = nn.Parameter(torch.randn(5, 3))
        self.other_way = nn.Parameter(torch.randn(4, 3))
        self.table = nn.Parameter(torch.randn(4, 2))
        self.row = nn.Parameter(torch.randn(3))
        self.pair = nn.Parameter(torch.randn(2, 3))


ROWS = [
    Row("stacked", ("a", "b"), sizes=(2, 3)),
    Row("other_way", ("c",), transposed=True),
    Row("table", ("d",), skip=2),
    Row("row", ("e",), lead=True),
    Row("pair", ("f",), flipped=True),
]


def theirs() -> dict[str, Tensor]:
    shapes = {"a": (2, 3), "b": (3, 3), "c": (3, 4), "d": (6, 2), "e": (1, 3), "f": (2, 3)}
    return {name: torch.randn(shape) for name, shape in shapes.items()}


def test_every_layout_by_hand() -> None:
    model, there = Parts(), theirs()
    fill(model, ROWS, there, source="x")
    assert model.stacked.tolist() == there["a"].tolist() + there["b"].tolist()
    assert model.other_way.tolist() == [[there["c"][i, o].item() for i in range(3)] for o in range(4)]
    assert model.table.tolist() == there["d"].tolist()[2:]
    assert model.row.tolist() == there["e"].tolist()[0]
    assert model.pair.tolist() == there["f"].tolist()[::-1]


def test_and_back() -> None:
    model, there = Parts(), theirs()
    fill(model, ROWS, there, source="x")
    there["d"][:2] = 0  # what has no counterpart here
    back = spill(model, ROWS)
    assert back.keys() == there.keys()
    assert all(torch.equal(back[name], there[name]) for name in there)


def test_nothing_is_copied_that_lies_alike() -> None:
    model = Parts()
    back = spill(model, ROWS)
    assert back["b"].data_ptr() == model.stacked[2:].data_ptr()


def test_equal_parts_where_sizes_are_not_said() -> None:
    rows = layer("ours.", "theirs.", [Row("widen", ("gate", "up"))])
    assert [row.ours for row in rows] == ["ours.widen.weight", "ours.widen.bias"]
    assert rows[1].theirs == ("theirs.gate.bias", "theirs.up.bias")
    model = nn.Linear(2, 6)
    there = {"gate.weight": torch.randn(3, 2), "up.weight": torch.randn(3, 2), "b": torch.randn(6)}
    fill(model, [Row("weight", ("gate.weight", "up.weight")), Row("bias", ("b",))], there, source="x")
    assert torch.equal(model.weight[3:], there["up.weight"])


class Watched(Mapping[str, Tensor]):
    """Tensors that are counted while they are in hand."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self.tensors, self.read = tensors, list[str]()
        self.shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}

    def __getitem__(self, name: str) -> Tensor:
        self.read.append(name)
        return self.tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)


def test_a_tensor_is_read_once() -> None:
    there = Watched(theirs() | {"ignored": torch.zeros(1)})
    fill(Parts(), ROWS, there, source="x", ignored=["ign.*"])
    assert sorted(there.read) == [*"abcdef"]


def test_what_fits_is_known_before_anything_is_read_or_has_room() -> None:
    with torch.device("meta"):
        model = Parts()
    there = Watched(theirs())
    fit(model, ROWS, there, source="x")
    there.shapes["c"] = (4, 3)
    with pytest.raises(
        CheckpointError, match=r"x does not fit .* 1 tensors: 'c' has shape \(4, 3\) instead of \(3, 4\)"
    ):
        fit(model, ROWS, there, source="x")
    assert there.read == []


def refusal(model: nn.Module, rows: list[Row], there: dict[str, Tensor]) -> str:
    with pytest.raises(CheckpointError) as refused:
        fill(model, rows, there, source="that/file", ignored=["buffer"])
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_all_that_does_not_fit_is_listed() -> None:
    there = theirs() | {"g": torch.zeros(1), "buffer": torch.zeros(1)}
    del there["a"]
    there["c"] = torch.zeros(4, 3)
    there["f"][1, 2] = torch.nan
    said = refusal(Parts(), ROWS, there)
    assert said.startswith("that/file does not fit this model in 4 tensors: ")
    for complaint in (
        "'a' is missing",
        "'c' has shape (4, 3) instead of (3, 4)",
        "'g' is surplus",
        "'f' holds NaN or infinity",
    ):
        assert complaint in said
    assert "buffer" not in said


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_values_that_are_no_numbers(value: float, dtype: torch.dtype) -> None:
    there = {name: tensor.to(dtype) for name, tensor in theirs().items()}
    there["b"][2, 1] = value
    assert "1 tensors: 'b' holds NaN or infinity" in refusal(Parts(), ROWS, there)


def test_ten_are_shown() -> None:
    model = DecoderOnly(DecoderOnlyConfig(vocabulary=5, width=4, heads=2, layers=3, hidden=3, length=4))
    said = refusal(model, FAMILIES["gpt2"].rows(model.config), {})
    assert f"in {len(FAMILIES['gpt2'].rows(model.config))} tensors" in said
    assert said.count("is missing") == 10
    assert said.endswith(f"and {len(FAMILIES['gpt2'].rows(model.config)) - 10} more")


def test_a_map_of_another_model() -> None:
    with pytest.raises(CheckpointError, match=r"not of this model.*pair"):
        fill(Parts(), ROWS[:-1], theirs(), source="x")
    with pytest.raises(CheckpointError, match=r"not of this model.*more"):
        spill(Parts(), [*ROWS, Row("more", ("h",))])


def test_other_numbers_become_ours() -> None:
    model, there = Parts(), {name: tensor.half() for name, tensor in theirs().items()}
    fill(model, ROWS, there, source="x")
    assert model.row.dtype == torch.float32
    assert torch.equal(model.row, there["e"][0].float())


FAMILY = Family(
    "x", lambda config, names: None, lambda config: {}, lambda config: [],
    prefix="body.", spellings=((r"\.gamma$", ".weight"),),
)  # fmt: skip


@pytest.mark.parametrize(
    ("names", "spelled"),
    [
        (["body.a.weight", "head.b"], ["body.a.weight", "head.b"]),
        (["a.weight", "c"], ["body.a.weight", "body.c"]),
        (["a.gamma"], ["body.a.weight"]),
        (["body.norm.gamma"], ["body.norm.weight"]),
    ],
)
def test_bare_bodies_and_old_spellings(names: list[str], spelled: list[str]) -> None:
    there = {name: torch.full((1,), float(i)) for i, name in enumerate(names)}
    found = FAMILY.spelled(there)
    assert list(found) == spelled
    assert [found[name].item() for name in spelled] == list(range(len(names)))


@pytest.mark.parametrize("name", FAMILIES)
def test_the_bare_body_of_every_family(name: str) -> None:
    """A file of the body alone lacks the prefix; ours has no head then, or one that is tied."""
    family = FAMILIES[name]
    tiny = {
        "vocab_size": 9, "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 6,
        "max_position_embeddings": 5, "n_embd": 8, "n_head": 2, "n_layer": 1, "n_positions": 5, "dim": 8, "n_heads": 2,
        "n_layers": 1, "hidden_dim": 6, "embedding_size": 4, "d_model": 8, "encoder_layers": 1, "decoder_layers": 1,
        "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 6, "decoder_ffn_dim": 6,
        "d_kv": 4, "d_ff": 6, "num_layers": 1, "num_heads": 2, "image_size": 4, "patch_size": 2, "pad_token_id": 1,
        "num_key_value_heads": 2, "tie_word_embeddings": True,
    }  # fmt: skip
    config = family.read(tiny, set())
    model, other = build(config), build(config)
    bare = {one.removeprefix(family.prefix): tensor for one, tensor in spill(model, family.rows(config)).items()}
    assert family.prefix == "" or not any(one.startswith(family.prefix) for one in bare)
    found = family.spelled(bare)
    assert family.read(tiny, found.keys()) == config
    fill(other, family.rows(config), found, source="x", ignored=family.ignored)
    assert all(map(torch.equal, model.state_dict().values(), other.state_dict().values()))
