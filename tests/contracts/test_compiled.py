"""Compiled = eager: no graph break in any model, and the real compiler's answer for a few."""

import pytest
import torch

from tests.contracts.covering import Setting, each, label, pairwise
from tests.contracts.family import COUNTS, FACTORS, build, caller, tokens
from tests.contracts.test_models import CLOSE

# Tracing takes a second or two each: every row in every mode here, every pair of rows in the slow suite.
SETTINGS = [
    *(pytest.param(s, id=label(s)) for s in each(FACTORS, per="mode")),
    *(pytest.param(s, id="pair-" + label(s), marks=pytest.mark.slow) for s in pairwise(FACTORS)),
]

COMMON = {"score": "scaled_dot", "norm": "layer_norm", "combination": "latest", "persistent": 0, "kv_heads": None}
REAL = [
    {"mode": "encoder_decoder", "positions": "sinusoidal", "residual": "post_norm", "feedforward": "relu"},
    {"mode": "encoder_only", "positions": "learned", "residual": "post_norm", "feedforward": "gelu"},
    {"mode": "decoder_only", "positions": "learned", "residual": "pre_norm", "feedforward": "gelu_tanh"},
    {"mode": "decoder_only", "positions": "rotary", "residual": "pre_norm", "feedforward": "swiglu", "kv_heads": 2},
    {"mode": "encoder_decoder", "positions": "t5", "residual": "pre_norm", "feedforward": "geglu"},
    {"mode": "decoder_only", "positions": "shaw", "residual": "deepnorm", "feedforward": "relu", "score": "additive"},
]


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch.compiler.reset()


@pytest.mark.parametrize("setting", SETTINGS)
def test_no_graph_breaks(setting: Setting) -> None:
    model = build(setting, layers=1)
    compiled = torch.compile(caller(model), backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(tokens(), COUNTS), caller(model)(tokens(), COUNTS), **CLOSE)


@pytest.mark.parametrize("setting", REAL, ids=label)
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # of the compiler's own imports
def test_the_real_compiler(setting: Setting) -> None:
    model = build({**COMMON, **setting}, layers=1)
    compiled = torch.compile(caller(model), fullgraph=True)
    torch.testing.assert_close(compiled(tokens(), COUNTS), caller(model)(tokens(), COUNTS), **CLOSE)
