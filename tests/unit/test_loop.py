import json
import math
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from clearhead.errors import ConfigError
from clearhead.nn.weights import load_weights
from clearhead.train import step as step_module
from clearhead.train.blocks import find_blocks, recomputing
from clearhead.train.checkpoint import State
from clearhead.train.distributed import ALONE
from clearhead.train.history import kept_steps, out_of_patience, ranking
from clearhead.train.interrupt import InterruptionError
from clearhead.train.job import Job
from clearhead.train.loop import train
from clearhead.train.loss import Terms
from clearhead.train.optim import build_optimizer
from clearhead.train.run import Run
from clearhead.train.step import DivergenceError, Stepper
from tests.unit.tiny_training import (
    Batch,
    TinyModel,
    rows_of,
    same_bits,
    snapshot,
    tiny_counts,
    tiny_job,
    tiny_loss,
    tiny_training,
    tiny_validate,
)


def curve(run: Path, kind: str = "train") -> list[float]:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [record["loss"] for record in records if record["kind"] == kind]


def test_training_lowers_the_loss() -> None:
    model = TinyModel()
    before = tiny_validate(model)["loss"]
    report = train(model, tiny_job(), tiny_training(steps=80, validate_every=80))
    assert report.step == 80
    assert report.history[80]["loss"] < before / 4


@pytest.mark.parametrize("parts", [2, 4, 8])
def test_small_batches_accumulated_are_one_large_batch(parts: int, tmp_path: Path) -> None:
    """Unequal lengths, two terms with different counts: a mean of means would be off by percents."""
    weights = {}
    for cut in (1, parts):
        model = TinyModel().double()
        job = tiny_job(parts=cut)
        assert len(job.batches(1)) == cut
        train(model, job, tiny_training(eps=1e-3), run_directory=tmp_path / str(cut))
        weights[cut] = snapshot(model)
    for name, tensor in weights[1].items():
        torch.testing.assert_close(weights[parts][name], tensor, rtol=0, atol=1e-6)
    assert curve(tmp_path / "1") == pytest.approx(curve(tmp_path / str(parts)), abs=1e-6)


def test_the_gradient_is_that_of_the_sum_of_the_terms_means() -> None:
    model, job = TinyModel(), tiny_job(parts=3)
    training = tiny_training(clip=0.0, learning_rate=1e-12)
    gradients: dict[str, Tensor] = {}
    optimizer = build_optimizer(model, training)
    optimizer.register_step_pre_hook(
        lambda *_: gradients.update({n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})
    )
    result = Stepper(State(model, optimizer), job, training, ALONE, device=torch.device("cpu"), say=print)(1)
    terms = tiny_loss(model, rows_of(1, 8))
    whole = sum(total / count for total, count in terms.values())
    assert isinstance(whole, Tensor)
    assert result.loss == pytest.approx(float(whole.detach()), rel=1e-5)
    assert result.amount == tiny_counts(rows_of(1, 8))["token"]
    names = dict(model.named_parameters())
    for name, expected in zip(names, torch.autograd.grad(whole, [*names.values()]), strict=True):
        torch.testing.assert_close(gradients[name], expected, rtol=1e-4, atol=1e-6)


def test_clipping_bounds_the_step_of_plain_gradients() -> None:
    model = TinyModel()
    norms = []
    training = tiny_training(clip=0.01, steps=1)
    optimizer = build_optimizer(model, training)
    optimizer.register_step_pre_hook(
        lambda *_: norms.append(math.sqrt(sum(float(p.grad.pow(2).sum()) for p in model.parameters())))
    )
    result = Stepper(State(model, optimizer), tiny_job(), training, ALONE, device=torch.device("cpu"), say=print)(1)
    assert result.gradient_norm > 0.01
    assert norms == [pytest.approx(0.01, rel=1e-3)]


def test_counts_that_disagree_with_the_loss_are_an_error() -> None:
    wrong = replace(tiny_job(), counts=lambda batch: {"token": 3, "row": len(batch[2])})
    with pytest.raises(ConfigError, match="the loss counted"):
        train(TinyModel(), wrong, tiny_training())
    with pytest.raises(ConfigError, match=r"terms of this job are \('loss',\)"):
        train(TinyModel(), replace(tiny_job(), terms=("loss",)), tiny_training())
    with pytest.raises(ConfigError, match="none of several terms"):
        replace(tiny_job(), terms=("loss", "row"))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_no_number_stops_and_keeps_the_last_checkpoint(bad: float, tmp_path: Path) -> None:
    job = tiny_job()

    def loss(model: nn.Module, batch: Batch) -> Terms:
        poison = bad if torch.equal(batch[0], rows_of(6, 8)[0]) else 1.0
        return {name: (total * poison, count) for name, (total, count) in tiny_loss(model, batch).items()}

    model = TinyModel()
    with pytest.raises(DivergenceError, match=r"at step 6: .*checkpoint-4 is the last good"):
        train(model, replace(job, loss=loss), tiny_training(checkpoint_every=2), run_directory=tmp_path / "run")
    assert Run(tmp_path / "run").steps() == [2, 4]
    assert all(torch.isfinite(p).all() for p in model.parameters())


def test_early_stopping_and_the_best_checkpoint(tmp_path: Path) -> None:
    scores = iter([3.0, 1.0, 2.0, 2.0, 2.0, 0.0])
    models = []

    def validate(model: nn.Module) -> dict[str, float]:
        assert not model.training
        assert not torch.is_grad_enabled()
        models.append(snapshot(model))
        return {"loss": next(scores)}

    model = TinyModel(dropout=0.1)
    report = train(
        model,
        replace(tiny_job(), validate=validate, samples=lambda model: ["a → b"]),
        tiny_training(validate_every=2, patience=3, keep=1),
        run_directory=tmp_path / "run",
    )
    assert (report.step, report.best, report.stopped_early) == (10, 4, True)
    assert report.folder == tmp_path / "run" / "checkpoint-4"
    assert Run(tmp_path / "run").steps() == [4, 10]
    best = TinyModel()
    load_weights(best, report.folder / "model.safetensors")
    assert same_bits(snapshot(best), models[1])
    assert model.training
    assert '"samples": ["a → b"]' in (tmp_path / "run" / "metrics.jsonl").read_text()


def test_decisions_follow_from_the_history() -> None:
    history = {2: {"bleu": 10.0}, 4: {"bleu": math.nan}, 6: {"bleu": 30.0}, 8: {"bleu": 30.0}, 10: {"bleu": 20.0}}
    training = tiny_training(metric="bleu", better="higher", validate_every=2, patience=2, keep=2)
    assert ranking(history, training) == [6, 8, 10, 2]
    assert out_of_patience(history, training)
    assert not out_of_patience({2: {"bleu": 1.0}, 4: {"bleu": 0.0}}, training)
    assert kept_steps([2, 5, 6, 9, 12], history, training) == {6, 2, 12}
    assert kept_steps([3, 6, 9, 12], {}, training) == {9, 12}
    with pytest.raises(ConfigError, match=r"metric='bleu' is not among"):
        ranking({2: {"loss": 1.0}}, training)


def test_validation_does_not_disturb_training() -> None:
    weights = []
    for every in (0, 1):
        model = TinyModel(dropout=0.3)
        train(model, tiny_job(), tiny_training(validate_every=every, ema=0.9))
        weights.append(snapshot(model))
    assert same_bits(*weights)


def test_recomputing_gives_the_same_gradients_with_dropout_and_is_undone() -> None:
    weights = []
    for recompute in (False, True):
        model = TinyModel(dropout=0.3)
        train(model, tiny_job(), tiny_training(checkpoint_activations=recompute))
        weights.append(snapshot(model))
        assert "forward" not in vars(model.blocks[0])
    assert same_bits(*weights)


def test_a_recomputed_block_runs_twice_only_when_gradients_are_wanted() -> None:
    model, calls = TinyModel(), []
    block = model.blocks[0][0]
    block.register_forward_hook(lambda *_: calls.append(1))
    token_BL = torch.zeros(1, 2, dtype=torch.long)
    with recomputing(find_blocks(model)):
        model(token_BL)[0].sum().backward()
        assert len(calls) == 2
        with torch.no_grad():
            model(token_BL)
    assert len(calls) == 3


def test_blocks_are_the_members_of_outermost_lists_each_once() -> None:
    shared = nn.Linear(2, 2)
    inner = nn.ModuleList([nn.ModuleList([nn.Linear(1, 1)]), shared, shared])
    assert find_blocks(nn.ModuleDict({"a": nn.Linear(1, 1), "b": inner})) == [inner[0], shared]


@pytest.mark.parametrize("at_once", [True, False])
def test_compiling_that_fails_falls_back_with_one_sentence(
    at_once: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken(nn.Module):
        def forward(self, *_: object) -> None:
            raise RuntimeError("no compiler\nand many more lines")

    def refuse(model: nn.Module) -> nn.Module:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(torch, "compile", refuse if at_once else lambda model: Broken())
    weights = []
    for compiled in (False, True):
        model = TinyModel(dropout=0.3)
        train(model, tiny_job(parts=2), tiny_training(compile=compiled, progress="lines"))
        weights.append(snapshot(model))
    said = [line for line in capsys.readouterr().err.splitlines() if "compile" in line]
    assert same_bits(*weights)
    assert said == ["torch.compile does not work here (RuntimeError: no compiler); training goes on without."]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*script_method.*:DeprecationWarning")  # torch's own, when it compiles
def test_compiled_training_is_plain_training(tmp_path: Path) -> None:
    curves = []
    for compiled in (False, True):
        train(
            TinyModel(),
            tiny_job(),
            tiny_training(compile=compiled, progress="quiet"),
            run_directory=tmp_path / str(compiled),
        )
        curves.append(curve(tmp_path / str(compiled)))
    assert curves[0] == pytest.approx(curves[1], abs=1e-4)


def test_bf16_where_there_is_none_goes_on_in_float32(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True, "avx512_bf16": False})
    weights = []
    for precision in ("float32", "bf16"):
        model = TinyModel()
        train(model, tiny_job(), tiny_training(precision=precision, progress="lines"))
        weights.append(snapshot(model))
    assert same_bits(*weights)
    assert "This cpu has no bf16 arithmetic: training goes on in float32.\n" in capsys.readouterr().err


@pytest.mark.parametrize(("program", "works"), [("pass", True), ("import os; os.abort()", False)])
def test_bf16_that_is_promised_is_tried_where_it_can_do_no_harm(
    program: str, works: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    monkeypatch.setattr(step_module, "BF16_TRIAL", program)
    assert step_module.can_bf16(torch.device("cpu")) is works


def test_bf16_means_autocast_around_the_loss_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_module, "can_bf16", lambda device: True)
    seen = []

    def loss(model: nn.Module, batch: Batch) -> Terms:
        seen.append((torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")))
        with torch.autocast("cpu", enabled=False):  # this machine may be unable to do it
            return tiny_loss(model, batch)

    job = replace(tiny_job(), loss=loss)
    train(TinyModel(), job, tiny_training(steps=1, warmup=0, precision="bf16"))
    train(TinyModel(), job, tiny_training(steps=1, warmup=0))
    assert seen[0] == (True, torch.bfloat16)
    assert not seen[1][0]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_finishes_the_step_and_saves(
    number: int, code: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(number)
    with pytest.raises(InterruptionError, match=r"after step 5; .*checkpoint-5 is the last good") as caught:
        train(TinyModel(), killing_job(number, 5), tiny_training(progress="lines"), run_directory=tmp_path / "run")
    assert caught.value.exit_code == code
    assert Run(tmp_path / "run").steps() == [5]
    assert signal.getsignal(number) == before
    assert "a second signal stops at once" in capfd.readouterr().err


def test_a_second_signal_stops_at_once(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(TinyModel(), killing_job(signal.SIGINT, 5, times=2), tiny_training(), run_directory=tmp_path / "run")
    assert Run(tmp_path / "run").steps() == []


def killing_job(number: int, at: int, times: int = 1) -> Job[Batch]:
    job = tiny_job()

    def batches(step: int) -> list[Batch]:
        for _ in range(times if step == at else 0):
            os.kill(os.getpid(), number)
        return job.batches(step)

    return replace(job, batches=batches)


def test_without_a_run_directory_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    report = train(TinyModel(), tiny_job(), tiny_training(checkpoint_every=1, validate_every=1))
    assert report.folder is None
    assert [*tmp_path.iterdir()] == []
    with pytest.raises(InterruptionError, match="nothing is saved"):
        train(TinyModel(), killing_job(signal.SIGINT, 2), tiny_training())


def test_what_is_about_to_be_removed_is_not_said_to_be_saved(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    job, training = killing_job(signal.SIGINT, 2), tiny_training(progress="lines")
    with pytest.raises(InterruptionError, match=r"after step 2; nothing is saved.*`out`") as caught:
        train(TinyModel(), job, training, run_directory=tmp_path / "run", fleeting=True)
    said = f"{caught.value} {capfd.readouterr().err}"
    assert "This step is finished before training stops" in said
    assert "checkpoint" not in said


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"validate_every": 2}, "validate_every=2"),
        ({"shard": True}, "torchrun"),
        ({"device": "tpu9"}, "device='tpu9'"),
        ({"freeze": ("nothing.*",)}, r"no parameter matches 'nothing\.\*'"),
    ],
    ids=str,
)
def test_what_cannot_work_is_said_before_anything_is_written(
    wrong: dict[str, object], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=problem):
        train(TinyModel(), replace(tiny_job(), validate=None), tiny_training(**wrong), run_directory=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_tensorboard_needs_a_place_to_write_to() -> None:
    with pytest.raises(ConfigError, match="tensorboard"):
        train(TinyModel(), tiny_job(), tiny_training(tensorboard=True))
