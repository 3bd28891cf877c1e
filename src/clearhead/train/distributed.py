"""More than one process: what `torchrun` set up is joined, and gradients are summed over the ranks.

Sums, not means: each loss is divided by the counts of the whole effective batch before its backward pass
(see `step.py`), so that the sum of the ranks' gradients is the gradient of one process with the whole batch.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from clearhead.errors import ConfigError
from clearhead.train.loss import Terms

__all__ = ["ALONE", "ShardedLoss", "World", "gather", "join", "pick_device", "refuse_to_shard", "spread_like"]

Batch = TypeVar("Batch")

TORCHRUN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class World:
    """Who else trains: this process is `rank` of `size`, and the `local_rank`-th on its machine."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @property
    def leads(self) -> bool:
        """Whether this process is the one that writes."""
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """The sum over the ranks, on every rank."""
        return self._reduce(values, dist.ReduceOp.SUM)

    def largest(self, value: int, device: torch.device) -> int:
        """The largest of the ranks' values, on every rank."""
        return int(self._reduce(torch.tensor(value, device=device), dist.ReduceOp.MAX))

    def copy_from_leader(self, tensors: Iterable[Tensor]) -> None:
        """Overwrite each tensor with rank 0's."""
        if self.size > 1:
            for tensor in tensors:
                dist.broadcast(tensor.detach(), src=0)

    def wait(self) -> None:
        """Go on when every rank is here."""
        if self.size > 1:
            dist.barrier()

    def sum_gradients(self, parameters: list[nn.Parameter]) -> None:
        """Replace each gradient by its sum over the ranks, in one message.

        A parameter may have a gradient on some ranks only, or on none; in the last case it keeps None, so
        that the optimizer leaves it alone as it would in one process.
        """
        if self.size == 1:
            return
        flags = torch.tensor([p.grad is not None for p in parameters], device=parameters[0].device)
        pieces = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        summed = self.sum(torch.cat([flags.float(), *(piece.flatten().float() for piece in pieces)]))
        present, *gradients = torch.split(summed, [len(parameters), *(p.numel() for p in parameters)])
        for parameter, gradient, somewhere in zip(parameters, gradients, present.tolist(), strict=True):
            parameter.grad = gradient.view_as(parameter).to(parameter.dtype) if somewhere else None

    def _reduce(self, values: Tensor, operation: dist.ReduceOp.RedOpType) -> Tensor:
        if self.size == 1:
            return values
        reduced = values.clone()
        dist.all_reduce(reduced, operation)
        return reduced


ALONE = World()


@contextmanager
def join(device: str = "auto") -> Iterator[World]:
    """The processes that `torchrun` started (gloo on CPU, nccl on GPU), or this process alone without it.

    Where they are joined already, the same again; then only the outermost parts them.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield ALONE
        return
    missing = [name for name in TORCHRUN if name not in os.environ]
    if missing:
        raise ConfigError(f"WORLD_SIZE is {size}, yet {missing[0]} is not set: start all processes with torchrun")
    world = World(rank=int(os.environ["RANK"]), size=size, local_rank=int(os.environ["LOCAL_RANK"]))
    if dist.is_initialized():
        yield world
        return
    place = pick_device(device, world)
    if place.type == "cuda":
        torch.cuda.set_device(place)
    dist.init_process_group("nccl" if place.type == "cuda" else "gloo")
    try:
        yield world
    finally:
        dist.destroy_process_group()


def pick_device(name: str, world: World = ALONE) -> torch.device:
    """The device of that name; "auto" and a bare "cuda" mean this rank's own GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise ConfigError(f"device must be auto, cpu, cuda or another of torch's: device={name!r}") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device={name!r} was asked for, but torch finds no GPU here")
    try:
        torch.empty(0, device=device)
    except (AssertionError, RuntimeError) as error:
        raise ConfigError(f"device={name!r} was asked for, but this torch cannot use it here") from error
    return torch.device("cuda", world.local_rank) if device.type == "cuda" and device.index is None else device


class ShardedLoss(nn.Module, Generic[Batch]):
    """The loss of a model that is spread over the ranks (FSDP2), each block gathered only while it computes [zhao2023].

    The loss, not the model, is the root of what is sharded: it may ask the model for more than its `forward`, and
    whatever lies outside the blocks (embeddings, heads) is whole from the start of the call to the backward pass.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Callable[[nn.Module, Batch], Terms],
        blocks: Iterable[nn.Module],
        world: World,
        device: torch.device,
    ) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import FSDPModule, fully_shard

        super().__init__()
        self.model = model
        self.loss = loss
        mesh = init_device_mesh(device.type, (world.size,))
        self.parts: list[tuple[FSDPModule, bool]] = []  # and whether it is cut again as soon as it has computed
        for module in (*_separable(model, blocks), self):
            sharded = fully_shard(module, mesh=mesh, reshard_after_forward=module is not self)
            sharded.set_gradient_divide_factor(1.0)  # a sum, as in `sum_gradients`
            sharded.set_force_sum_reduction_for_comms(True)  # gloo knows no other
            self.parts.append((sharded, module is not self))

    def forward(self, model: nn.Module, batch: Batch) -> Terms:
        return dict(self.loss(model, batch))

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Inside, every rank holds the whole model, so that anything can be asked of it, such as to generate."""
        for part, _ in self.parts:
            part.set_reshard_after_forward(False, recurse=False)
            part.unshard()
        try:
            yield
        finally:
            for part, fleeting in self.parts:
                part.set_reshard_after_forward(fleeting, recurse=False)
                part.reshard()


def refuse_to_shard(model: nn.Module) -> None:
    """Say so where a model has a parameter that cannot be cut into rows."""
    for name, parameter in model.named_parameters():
        if parameter.ndim == 0:
            raise ConfigError(f"shard=True cuts parameters into rows, and {name!r} is a single number: leave it out")


def _separable(model: nn.Module, blocks: Iterable[nn.Module]) -> list[nn.Module]:
    """The blocks that share no parameter with anything outside them; the others are gathered with the rest."""
    everywhere = _occurrences(model)
    return [block for block in blocks if all(everywhere[p] == count for p, count in _occurrences(block).items())]


def _occurrences(module: nn.Module) -> Counter[nn.Parameter]:
    return Counter(parameter for _, parameter in module.named_parameters(remove_duplicate=False))


def gather(tensors: dict[str, Tensor], world: World) -> dict[str, Tensor]:
    """The whole tensors, on rank 0; {} elsewhere. Every rank must call this: sharded ones take all to assemble."""
    whole = {}
    for name, tensor in tensors.items():
        full = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
        if world.leads:
            whole[name] = full.detach().cpu()
    return whole


def spread_like(whole: Tensor, like: Tensor) -> Tensor:
    """A whole tensor on the device of `like`, and sharded as it is."""
    moved = whole.to(like.device)
    if not hasattr(like, "full_tensor"):
        return moved
    from torch.distributed.tensor import DTensor, distribute_tensor

    sharded = cast("DTensor", like)
    return distribute_tensor(moved, sharded.device_mesh, sharded.placements)
