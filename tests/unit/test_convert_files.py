"""Checkpoints as files: whole ones open in every layout, broken and hostile ones get one sentence."""

import json
import pickle
import struct
import subprocess
import sys
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from clearhead.convert.files import tensors_of
from clearhead.convert.load import is_foreign, load_foreign
from clearhead.convert.save import as_foreign
from clearhead.errors import CheckpointError
from clearhead.models.decoder_only import DecoderOnly, DecoderOnlyConfig

CONFIG = DecoderOnlyConfig(vocabulary=17, width=8, heads=2, layers=2, hidden=12, length=10, bos=1, eos=2)


@pytest.fixture
def model() -> DecoderOnly:
    torch.manual_seed(0)
    return DecoderOnly(CONFIG).eval()


@pytest.fixture
def folder(tmp_path: Path, model: DecoderOnly) -> Path:
    """As Hugging Face has it, in one file."""
    about, tensors = as_foreign(model, CONFIG)
    (tmp_path / "config.json").write_text(json.dumps(about))
    save_file({name: tensor.contiguous().clone() for name, tensor in tensors.items()}, tmp_path / "model.safetensors")
    return tmp_path


def tensors_in(folder: Path) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in tensors_of(folder).items()}


def same_answers(ours: DecoderOnly, folder: Path) -> None:
    token_BL = torch.randint(CONFIG.vocabulary, (2, 7))
    with torch.no_grad():
        torch.testing.assert_close(load_foreign(folder).model(token_BL), ours(token_BL))


def test_one_file(model: DecoderOnly, folder: Path) -> None:
    assert is_foreign(folder)
    same_answers(model, folder)


def test_shards(model: DecoderOnly, folder: Path) -> None:
    shard(folder)
    same_answers(model, folder)


def shard(folder: Path, **renamed: str) -> None:
    """Two files and an index; `renamed` lets the index lie about a file's name."""
    tensors = tensors_in(folder)
    names = sorted(tensors)
    (folder / "model.safetensors").unlink()
    files = {"one.safetensors": names[::2], "two.safetensors": names[1::2]}
    for file, inside in files.items():
        save_file({name: tensors[name] for name in inside}, folder / file)
    places = {name: renamed.get(file.split(".")[0], file) for file, inside in files.items() for name in inside}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))


@pytest.mark.parametrize("old", [False, True])
def test_what_pytorch_pickled(model: DecoderOnly, folder: Path, old: bool) -> None:
    tensors = tensors_in(folder)
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin", _use_new_zipfile_serialization=not old)
    same_answers(model, folder)


def test_numbers_are_kept_as_they_are_stored_when_asked(folder: Path) -> None:
    save_file({name: tensor.bfloat16() for name, tensor in tensors_in(folder).items()}, folder / "model.safetensors")
    assert {p.dtype for p in load_foreign(folder, dtype=None).model.parameters()} == {torch.bfloat16}
    assert {p.dtype for p in load_foreign(folder).model.parameters()} == {torch.float32}
    assert torch.get_default_dtype() == torch.float32


def test_masks_beside_the_weights_are_no_numbers_to_keep(model: DecoderOnly, folder: Path) -> None:
    """As older files of GPT-2 have them, larger than any matrix of so small a model."""
    masks = {f"transformer.h.{i}.attn.bias": torch.ones(1, 1, 99, 99, dtype=torch.uint8) for i in range(CONFIG.layers)}
    save_file(tensors_in(folder) | masks, folder / "model.safetensors")
    assert {p.dtype for p in load_foreign(folder, dtype=None).model.parameters()} == {torch.float32}
    same_answers(model, folder)


def test_whole_numbers_alone_become_real_ones(folder: Path) -> None:
    save_file(
        {name: tensor.to(torch.int8) for name, tensor in tensors_in(folder).items()}, folder / "model.safetensors"
    )
    assert {p.dtype for p in load_foreign(folder, dtype=None).model.parameters()} == {torch.float32}


@pytest.mark.parametrize("dtype", [None, torch.float32])
def test_no_tensors_at_all(folder: Path, dtype: torch.dtype | None) -> None:
    save_file({}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"does not fit this model in .*'transformer\.wte\.weight' is missing"):
        load_foreign(folder, dtype=dtype)


class Payload:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (Path("executed"),)  # type: ignore[return-value]


def test_a_pickle_with_a_payload_is_refused_and_never_executed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.chdir(folder)
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"wte.weight": Payload()}, protocol=2))
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin"):
        load_foreign(folder)
    torch.save({"wte.weight": Payload()}, folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="refused: it holds more than tensors; nothing of it was run"):
        load_foreign(folder)
    assert not (folder / "executed").exists()


@pytest.mark.parametrize("value", [[1, 2], {"wte.weight": [1.0]}, {3: torch.zeros(2)}])
def test_pickles_of_other_things(folder: Path, value: object) -> None:
    (folder / "model.safetensors").unlink()
    torch.save(value, folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="should hold tensors by name"):
        load_foreign(folder)


def test_a_pickle_whose_tensor_is_larger_than_its_file(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"wte.weight": torch.zeros(1).expand(10**9, 10**6)}, folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"'wte\.weight' claims to be larger than the file"):
        load_foreign(folder)


def test_a_compressed_archive_is_neither_unpacked_nor_misread(folder: Path) -> None:
    """Mapped into memory, its bytes would be taken for numbers; unpacked, it can be a thousand times its size."""
    torch.save(tensors_in(folder), folder / "plain.bin")
    (folder / "model.safetensors").unlink()
    with ZipFile(folder / "plain.bin") as plain, ZipFile(folder / "pytorch_model.bin", "w", ZIP_DEFLATED) as packed:
        for name in plain.namelist():
            packed.writestr(name, plain.read(name))
    with pytest.raises(CheckpointError, match="in it is compressed"):
        load_foreign(folder)


@pytest.mark.parametrize("keep", [0, 4, 100, -10])
def test_truncated(folder: Path, keep: int) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match=r"cannot be read as safetensors .* cut short"):
        load_foreign(folder)


@pytest.mark.parametrize("claimed", [2**63, 2**63 - 1, 2**40, 10**8 + 1])
def test_a_header_that_claims_too_much(folder: Path, claimed: int) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(struct.pack("<Q", claimed) + file.read_bytes()[8:])
    with pytest.raises(CheckpointError, match="cannot be read as safetensors"):
        load_foreign(folder)


def test_broken_pickle(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x02junk")
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin"):
        load_foreign(folder)


@pytest.mark.parametrize("place", ["../one.safetensors", "/etc/passwd", "sub/one.safetensors", "..", "a\\b"])
def test_an_index_may_name_files_of_its_own_folder_alone(folder: Path, place: str) -> None:
    shard(folder, one=place)
    with pytest.raises(CheckpointError, match="does not lie in its own folder"):
        load_foreign(folder)


def test_an_index_of_files_that_are_not_there(folder: Path) -> None:
    shard(folder, two="three.safetensors")
    with pytest.raises(CheckpointError, match=r"'three\.safetensors', which is not there"):
        load_foreign(folder)


@pytest.mark.parametrize("index", ["[]", "{}", '{"weight_map": {}}', '{"weight_map": {"a": 1}}', "{", "[" * 100_000])
def test_no_index_at_all(folder: Path, index: str) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(index)
    with pytest.raises(CheckpointError, match=r"index\.json"):
        load_foreign(folder)


def test_the_same_tensor_twice(folder: Path) -> None:
    shard(folder)
    save_file(
        {name: tensor for name, tensor in tensors_in(folder).items() if "wte" in name or "wpe" in name},
        folder / "three.safetensors",
    )
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    index["weight_map"]["more"] = "three.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match="is in two files"):
        load_foreign(folder)


def test_no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"neither model\.safetensors nor pytorch_model\.bin"):
        load_foreign(folder)


@pytest.mark.parametrize("change", [{"model_type": "mamba"}, {"model_type": 7}, {"n_embd": -1}, {"n_head": "two"}])
def test_configs_that_cannot_be(folder: Path, change: dict[str, object]) -> None:
    about = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**about, **change}))
    with pytest.raises(CheckpointError) as caught:
        load_foreign(folder)
    if "model_type" in change:
        assert repr(change["model_type"]) in str(caught.value)
        assert "gpt2" in str(caught.value)


@pytest.mark.parametrize(
    ("size", "value", "sentence"),
    [
        ("vocab_size", 10**13, r"'transformer.wte.weight' has shape \(17, 8\) instead of \(10000000000000, 8\)"),
        ("n_positions", 10**9, r"instead of \(1000000000, 8\)"),
        ("n_inner", 10**11, r"instead of \(8, 100000000000\)"),
        ("n_embd", 10**30, "config.json cannot be used"),
        ("n_embd", 10**400, "config.json cannot be used"),
        ("n_layer", 10**8, "config.json cannot be used: 100000000 layers cannot be made of 28 tensors"),
        ("n_layer", 10**400, "config.json cannot be used: 1000.* layers cannot be made of 28 tensors"),
    ],
)
def test_sizes_of_which_there_are_no_tensors(folder: Path, size: str, value: int, sentence: str) -> None:
    about = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**about, size: value}))
    with pytest.raises(CheckpointError, match=sentence) as caught:
        load_foreign(folder)
    assert "\n" not in str(caught.value)


def test_missing_and_surplus_and_wrong_ones_are_listed(folder: Path) -> None:
    tensors = tensors_in(folder)
    gone = next(name for name in tensors if "ln_1" in name)
    tensors.pop(gone)
    tensors |= {f"surplus.{i}": torch.zeros(1) for i in range(20)}
    wrong = next(name for name in tensors if "wpe" in name)
    tensors[wrong] = torch.zeros(3, 3)
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError) as caught:
        load_foreign(folder)
    sentence = str(caught.value)
    assert gone in sentence
    assert wrong in sentence
    assert "22" in sentence
    assert sentence.count("surplus.") == 8  # ten are shown in all


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_values_that_are_not_numbers(folder: Path, value: float) -> None:
    tensors = tensors_in(folder)
    name = next(name for name in tensors if "wpe" in name)
    tensors[name][3, 1] = value
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="wpe"):
        load_foreign(folder)


MEASURE = """
import sys
from pathlib import Path
import clearhead.tasks.registry
from clearhead.convert.load import load_foreign

def memory(key):
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith(key))

before = memory("VmRSS:")
model = load_foreign(Path(sys.argv[1])).model
print((memory("VmHWM:") - before) / (Path(sys.argv[1]) / "model.safetensors").stat().st_size)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_a_model_is_in_memory_once(tmp_path: Path) -> None:
    """Every projection of this one is stacked from several tensors of the file."""
    config = DecoderOnlyConfig(
        vocabulary=2_000, width=1024, heads=8, kv_heads=4, layers=10, hidden=2048, positions="rotary", norm="rms_norm",
        feedforward="swiglu", biases=(False, False, False), length=64,
    )  # fmt: skip
    about, tensors = as_foreign(DecoderOnly(config), config)
    (tmp_path / "config.json").write_text(json.dumps(about))
    save_file({name: tensor.contiguous().clone() for name, tensor in tensors.items()}, tmp_path / "model.safetensors")
    asked = [sys.executable, "-W", "error", "-c", MEASURE, str(tmp_path)]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert 0.9 < float(done.stdout) <= 1.15
