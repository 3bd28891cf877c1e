"""Models as ONNX graphs, for onnxruntime and whoever else reads them. Batch and lengths may be any.

Whole numbers are int64, all others float32. Rows are padded on the right: of row b the first `count[b]` positions are
real. Keys and values are (batch, key-value heads, positions, head width), a pair for each layer i.

    encoder only       model.onnx     token (B, L) · count (B) · segment (B, L), where the model has segments
                                   -> hidden (B, L, D) · pooled (B, D) · and, of the heads that the model has,
                                      words (B, L, V) · follows (B, 2) · classes (B, C) · labels (B, L, C)

    decoder only       decoder.onnx   token (B, T) · past_count (B) · past.i.key, past.i.value (B, G, M, K)
                                   -> logits (B, T, V) · present.i.key, present.i.value (B, G, M + T, K)

    encoder–decoder    encoder.onnx   source (B, M) · source_count (B) -> cross.i.key, cross.i.value (B, G, M, K)
                       decoder.onnx   as above, and besides source_count · cross.i.key, cross.i.value

    vision             model.onnx     image (B, channels, side, side)
                                   -> hidden (B, L, D) · pooled (B, D) · classes (B, C), where the model has that head

    tables             model.onnx     number (B, C) · code (B, C); a kind that the table lacks is left out
                                   -> outputs (B, outputs)

One decoder reads prompts and writes: the first past has M = 0 and `past_count` 0; after a step, `present` is the next
past, and `past_count` has grown by the real tokens that each row was given. A row of fewer real tokens than T has
logits of no meaning behind them, and its next ones are written over what was padding. `past_count` never exceeds M.
"""

import copy
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.onnx import ONNXProgram

from clearhead.convert.onnx_graphs import GRAPHS, Graph
from clearhead.errors import ConfigError, MissingPackageError
from clearhead.nn.heads import Unembedding
from clearhead.nn.int8 import Int8Linear
from clearhead.nn.members import Linears, Members
from clearhead.tap import named_taps

__all__ = ["save_onnx"]

PACKAGES = ("onnx", "onnxscript")
OPSET = 20
# Sizes of the varying axes while a graph is traced: all different, and not 0 or 1, which would be taken for special.
SIZES = {"batch": 2, "length": 3, "past_length": 5, "source_length": 7}

# Parts that no graph can be made of, and what to do.
UNFIT: Mapping[type[nn.Module], str] = MappingProxyType(
    {
        Int8Linear: "has 8-bit weights, laid out for decoding here: export the model as it was before `to_int8`",
        Linears: "holds several models side by side: export them one by one",
        Members: "holds several models side by side: export them one by one",
    }
)


def save_onnx(model: nn.Module, folder: Path) -> list[Path]:
    """Write the model's graphs into a folder that exists; which files that made.

    Nothing is written before every graph is made. Weights beyond what one file can hold lie beside it in `….data`.
    """
    _check(model)
    with _quiet(), _at_rest(model) as resting, torch.no_grad():
        programs = {folder / graph.file: _program(resting, graph) for graph in GRAPHS[type(model)](resting)}
        for path, program in programs.items():
            program.save(path)
    beside = (path.with_name(f"{path.name}.data") for path in programs)
    return [*programs, *(path for path in beside if path.exists())]


def _check(model: nn.Module) -> None:
    """Refuse what no graph can be made of."""
    try:
        for package in PACKAGES:
            import_module(package)
    except ImportError as error:
        raise MissingPackageError(f"to write ONNX, {error.name} is needed: `pip install 'clearhead[onnx]'`") from error
    if type(model) not in GRAPHS:
        known = ", ".join(known.__name__ for known in GRAPHS)
        raise ConfigError(f"a {type(model).__name__} has no ONNX graphs; there are those of {known}")
    for name, tap in named_taps(model).items():
        if tap.watched:
            raise ConfigError(f"{name!r} is being watched, and an ONNX graph has no taps: export after the watching")
    for name, module in model.named_modules():
        if type(module) in UNFIT:
            raise ConfigError(f"{name!r} cannot be written as ONNX: it {UNFIT[type(module)]}")
    for name, parameter in model.named_parameters():
        if parameter.is_meta:
            raise ConfigError(f"{name!r} has a shape and no numbers: load the model's weights before its export")


@contextmanager
def _at_rest(model: nn.Module) -> Iterator[nn.Module]:
    """The model in evaluation, float32 and on the CPU: itself where it is so, and left as it was; otherwise a copy."""
    if any(weight.dtype != torch.float32 or weight.device.type != "cpu" for weight in model.parameters()):
        # What is packed for decoding can neither be copied nor cast, and no graph asks for it.
        packed = {id(module.packed): None for module in model.modules() if isinstance(module, Unembedding)}
        model = copy.deepcopy(model, packed).to("cpu", torch.float32)
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield model
    finally:
        for module in training:
            module.training = True


class _Traced(nn.Module):
    """A graph as the exporter wants it: a module that calls the model as `run` says."""

    def __init__(self, model: nn.Module, graph: Graph) -> None:
        super().__init__()
        self.model, self.graph = model, graph
        self.training = model.training

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return self.graph.run(self.model, *inputs)


def _program(model: nn.Module, graph: Graph) -> ONNXProgram:
    """The graph of the model, in memory."""
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass

    axes = tuple({i: name for i, name in enumerate(given.axes) if isinstance(name, str)} for given in graph.inputs)
    sizes = [[axis if isinstance(axis, int) else SIZES[axis] for axis in given.axes] for given in graph.inputs]
    example = tuple(torch.zeros(size, dtype=given.dtype) for size, given in zip(sizes, graph.inputs, strict=True))
    try:
        exported = torch.export.export(
            _Traced(model, graph),
            example,
            dynamic_shapes=(tuple(dict.fromkeys(names, Dim.DYNAMIC) for names in axes),),
            strict=True,  # otherwise Python's `len` of a tensor is taken for a constant
        )
        program: ONNXProgram = torch.onnx.export(  # type: ignore[assignment]  # None is of the older exporter
            exported,
            input_names=[given.name for given in graph.inputs],
            output_names=graph.outputs,
            dynamic_shapes=(axes,),
            opset_version=OPSET,
            custom_translation_table={torch.ops.aten.scaled_dot_product_attention.default: _attend},
            verbose=False,
        )
    except RuntimeError as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(f"{graph.file} cannot be made of this {type(model).__name__}: {reason}") from error
    # Where a node came from, which names files of whoever exports.
    ClearMetadataAndDocStringPass()(program.model)
    return program


def _attend(
    q_BHLK: Any,
    k_BGMK: Any,
    v_BGMK: Any,
    mask: Any = None,
    dropout: float = 0.0,
    causal: bool = False,
    scale: float = 1.0,
    enable_gqa: bool = False,
) -> Any:
    """Attention in ONNX's operators, as the kernel `plain` has it; the arguments are those of PyTorch's function.

    The exporter's own copies the keys for every query of a group, and what may look at nothing reads the mean there.
    """
    from onnxscript import ir, opset20

    op: Any = opset20
    if causal or dropout:
        raise NotImplementedError("no graph of ours trains, or is causal without a mask")
    H, G = q_BHLK.shape[1], k_BGMK.shape[1]

    def by(heads: int, x: Any) -> Any:
        """The queries of a group one after the other, and back: so keys and values are never repeated."""
        return x if H == G else op.Reshape(x, [0, heads, -1, 0])

    scores = by(H, op.MatMul(by(G, op.Mul(q_BHLK, scale)), op.Transpose(k_BGMK, perm=[0, 1, 3, 2])))
    if mask is None:
        weights = op.Softmax(scores, axis=-1)
    else:
        boolean = mask.dtype == ir.DataType.BOOL
        weights = op.Softmax(op.Where(mask, scores, float("-inf")) if boolean else op.Add(scores, mask), axis=-1)
        weights = op.Where(op.IsNaN(weights), 0.0, weights)
    return by(H, op.MatMul(by(G, weights), v_BGMK))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's remarks on its own inside."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
