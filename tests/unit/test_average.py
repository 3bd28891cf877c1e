from pathlib import Path

import pytest
import torch
from torch import nn

from clearhead.errors import CheckpointError, ConfigError
from clearhead.nn.stored import STORES
from clearhead.nn.weights import load_tensors, read_tensors, save_weights, write_tensors
from clearhead.train.average import MovingAverage, average
from clearhead.train.loop import train
from clearhead.train.run import Run
from tests.unit.tiny_training import TinyModel, same_bits, snapshot, tiny_job, tiny_training


def test_the_average_of_checkpoints_is_their_mean(tmp_path: Path) -> None:
    train(TinyModel(), tiny_job(), tiny_training(checkpoint_every=4, keep=3), run_directory=tmp_path / "run")
    folders = [Run(tmp_path / "run").folder(step) for step in (4, 8, 12)]
    states = [read_tensors(folder / "model.safetensors") for folder in folders]
    averaged = average(folders)
    for name, tensor in averaged.items():
        torch.testing.assert_close(tensor, torch.stack([state[name] for state in states]).mean(0))
    load_tensors(TinyModel(), averaged, source=tmp_path)


def test_one_checkpoint_is_its_own_average_and_whole_numbers_come_from_the_last(tmp_path: Path) -> None:
    for number in (1, 2):
        state = {"w": torch.full((2,), float(number), dtype=torch.bfloat16), "n": torch.tensor([number])}
        write_tensors(tmp_path / f"{number}.safetensors", state)
    files = [tmp_path / "1.safetensors", tmp_path / "2.safetensors"]
    assert same_bits(average(files[:1]), read_tensors(files[0]))
    both = average(files)
    assert both["w"].dtype == torch.bfloat16
    assert both["w"].tolist() == [1.5, 1.5]
    assert both["n"].tolist() == [2]


@pytest.mark.parametrize("store", sorted(STORES))
def test_weights_in_fewer_bits_are_averaged_as_numbers(store: str, tmp_path: Path) -> None:
    models, files = [nn.Linear(5, 4) for _ in range(3)], [tmp_path / f"{number}.safetensors" for number in range(3)]
    for model, file in zip(models, files, strict=True):
        save_weights(model, file, store)
    averaged = average(files)
    load_tensors(nn.Linear(5, 4), averaged, source=tmp_path)
    mean = torch.stack([model.weight.detach() for model in models]).mean(0)
    torch.testing.assert_close(averaged["weight"].float(), mean, rtol=0.0, atol=0.5 / 127)


def test_what_cannot_be_averaged_is_refused(tmp_path: Path) -> None:
    write_tensors(tmp_path / "a.safetensors", {"w": torch.zeros(2)})
    write_tensors(tmp_path / "b.safetensors", {"w": torch.zeros(3)})
    with pytest.raises(CheckpointError, match=r"b\.safetensors is of another architecture than .*a\.safetensors"):
        average([tmp_path / "a.safetensors", tmp_path / "b.safetensors"])
    with pytest.raises(ConfigError, match="at least one"):
        average([])


def test_the_moving_average_follows_its_recurrence() -> None:
    model = nn.Linear(3, 2)
    follower = MovingAverage(model, decay=0.6)
    expected = model.weight.detach().clone().double()
    for step in range(1, 30):
        nn.init.normal_(model.weight)
        follower.update(step)
        decay = min(0.6, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * model.weight.detach().double()
    torch.testing.assert_close(follower.averages["weight"].double(), expected, rtol=1e-5, atol=1e-6)


def test_inside_it_is_the_model_and_afterwards_all_is_as_before_to_the_bit() -> None:
    model = TinyModel()
    follower = MovingAverage(model, decay=0.5)
    before = snapshot(model)
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    learned = snapshot(model)
    with follower.applied():
        assert same_bits(snapshot(model), before)
    assert same_bits(snapshot(model), learned)
    assert model.out.weight is model.embed.weight


def test_an_average_of_other_parameters_is_refused() -> None:
    with pytest.raises(CheckpointError, match="other parameters"):
        MovingAverage(TinyModel(), 0.9).load({"w": torch.zeros(1)})
