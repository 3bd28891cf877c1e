"""Their configs and ours: alike in every spelling, nothing lost in silence, and what cannot be had refused by name."""

from dataclasses import fields, replace
from typing import Any

import pytest

from clearhead.convert.families import FAMILIES
from clearhead.convert.family import Family
from clearhead.errors import ConfigError
from clearhead.nn.feedforward import FEEDFORWARDS
from clearhead.nn.heads import POOLERS, POOLINGS
from clearhead.nn.norm import NORMS
from clearhead.nn.positions import POSITIONS
from clearhead.nn.residual import RESIDUALS
from clearhead.nn.scores import SCORES
from clearhead.nn.stack import COMBINATIONS

hf = pytest.importorskip("transformers")

# A file of each family that says something in its own words; what it leaves out are defaults.
SMALL = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 50}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
PAIR = {"d_model": 32, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "vocab_size": 60_000}
FILES: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 32, "n_head": 4, "n_layer": 2},
    "llama": SMALL | {"rope_scaling": {"rope_type": "llama3", **LLAMA3}},
    "mistral": SMALL | {"num_key_value_heads": 2},
    "qwen2": SMALL | {"num_key_value_heads": 4},
    "bert": SMALL,
    "roberta": SMALL,
    "distilbert": {"dim": 32, "n_heads": 4, "n_layers": 2},
    "albert": SMALL,
    "marian": PAIR,
    "pegasus": PAIR,
    "bart": PAIR,
    "t5": {"d_model": 32, "d_kv": 7, "num_heads": 4},
    "vit": {"hidden_size": 32, "num_attention_heads": 4},
}
# Names in a file that tell of heads.
HEADS: dict[str, set[str]] = {
    "bert": {"classifier.weight", "bert.pooler.dense.weight"},
    "roberta": {"lm_head.layer_norm.weight"},
    "distilbert": {"classifier.weight", "pre_classifier.weight"},
    "albert": {"predictions.LayerNorm.weight"},
    "marian": {"final_logits_bias"},
    "vit": {"classifier.weight"},
}


def read(name: str, **changes: Any) -> Any:
    return FAMILIES[name].read({"model_type": name, **FILES[name], **changes}, HEADS.get(name, set()))


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("said", [True, False], ids=["some", "nothing"])
def test_what_a_file_leaves_out_is_what_they_take(name: str, said: bool) -> None:
    file = {"model_type": name, **(FILES[name] if said else {})}
    whole = hf.AutoConfig.for_model(**file).to_dict()
    names = HEADS.get(name, set())
    assert FAMILIES[name].read(file, names) == FAMILIES[name].read(whole, names)


@pytest.mark.parametrize("name", FAMILIES)
def test_settings_by_the_other_names_that_they_take(name: str) -> None:
    """Their config class sets its own by them, whatever a file says besides."""
    file = {"model_type": name, **FILES[name]}
    aliases = type(hf.AutoConfig.for_model(**file)).attribute_map
    for alias, own in aliases.items():
        other = getattr(hf.AutoConfig.for_model(**file), own) * 2
        pair = {"decoder_attention_heads": other} if own == "encoder_attention_heads" else {}
        assert getattr(hf.AutoConfig.for_model(**file, **{alias: other}), own) == other
        assert read(name, **{alias: other}, **pair) == read(name, **{own: other}, **pair) != read(name)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"rope_theta": 500.0, "rope_scaling": None}, {"rope_type": "default", "rope_theta": 500.0}),
        (
            {"rope_theta": 500.0, "rope_scaling": {"type": "linear", "factor": 3.0}},
            {"rope_type": "linear", "factor": 3.0, "rope_theta": 500.0},
        ),
        (
            {"rope_theta": 50.0, "rope_scaling": {"rope_type": "llama3", **LLAMA3}},
            {"rope_type": "llama3", **LLAMA3, "rope_theta": 50.0},
        ),
    ],
    ids=["base", "linear", "llama3"],
)
@pytest.mark.parametrize("name", ["llama", "mistral", "qwen2"])
def test_rotary_positions_in_both_spellings(name: str, old: dict[str, Any], new: dict[str, Any]) -> None:
    assert read(name, **old) == read(name, rope_scaling=None, rope_parameters=new)
    theirs = hf.AutoConfig.for_model(**{"model_type": name, **FILES[name], **old}).to_dict()
    assert FAMILIES[name].read(theirs, set()) == read(name, **old)


def test_of_two_stretches_of_rotary_positions_they_take_the_older_spelling() -> None:
    both = {
        "rope_scaling": {"type": "linear", "factor": 3.0},
        "rope_parameters": {"rope_theta": 5.0},
        "rope_theta": 7.0,
    }
    theirs = hf.AutoConfig.for_model(**{"model_type": "llama", **FILES["llama"], **both}).rope_parameters
    ours = read("llama", **both)
    assert (ours.base, ours.rotary_factor) == (theirs["rope_theta"], theirs["factor"]) == (7.0, 3.0)


@pytest.mark.parametrize("kind", ["relu", "gelu", "gelu_new", "silu", "gated-relu", "gated-gelu", "gated-silu"])
def test_what_t5_bends_by_is_said_twice_and_both_must_agree(kind: str) -> None:
    bends = hf.AutoConfig.for_model("t5", feed_forward_proj=kind).dense_act_fn
    assert read("t5", feed_forward_proj=kind, dense_act_fn=bends) == read("t5", feed_forward_proj=kind)
    assert hf.AutoConfig.for_model("t5", feed_forward_proj=kind, dense_act_fn="tanh").dense_act_fn == "tanh"
    with pytest.raises(ConfigError, match="dense_act_fn='tanh'"):
        read("t5", feed_forward_proj=kind, dense_act_fn="tanh")


# Other values of our settings, in turn: each is expressed there, or refused by name.
OTHERS: dict[str, list[Any]] = {
    "positions": sorted(POSITIONS), "residual": sorted(RESIDUALS), "norm": sorted(NORMS), "score": sorted(SCORES),
    "feedforward": sorted(FEEDFORWARDS), "combination": sorted(COMBINATIONS), "pooling": sorted(POOLINGS),
    "pooler": sorted(POOLERS), "kv_heads": [1, 2], "head_width": [5, 6], "temperature": [2.0], "persistent": [3],
    "window": [5], "norm_eps": [1e-3], "hidden": [17], "length": [77], "width": [64], "heads": [8], "layers": [4],
    "encoder_layers": [3], "decoder_layers": [4], "vocabulary": [99], "target_vocabulary": [88], "base": [77.0],
    "rotary_factor": [2.0], "rotary_length": [32, None], "rotary_bounds": [(2.0, 3.0)], "buckets": [8],
    "farthest": [50],
    "biases": [False, True, (True, False, False), (False, False, True), (False, True, True)], "tied": [True, False],
    "scaled_embedding": [True, False], "embedding_norm": [True, False], "output_bias": [True, False],
    "output_scale": [1.0, 0.5], "segments": [0, 1, 3], "words": [True, False], "next_sentence": [True, False],
    "classes": [0, 5], "labels": [0, 5], "embedding_width": [8], "distinct": [1], "pad": [4], "bos": [5], "eos": [6],
    "image": [32], "zero_start": [True, False], "pruned": [(("x", (0,)),)], "patch": [8], "channels": [1],
}  # fmt: skip
# Settings that change nothing of what a model answers, or nothing beside the others that this family has.
IDLE = {
    "gpt2": {"base", "rotary_factor", "rotary_length", "rotary_bounds"},
    "mistral": {"rotary_bounds"}, "qwen2": {"rotary_bounds"},  # idle without a length
    "bert": {"base", "pooling"}, "roberta": {"base", "pooling"}, "distilbert": {"base"}, "albert": {"base", "pooling"},
    "marian": {"buckets", "farthest", "zero_start"}, "pegasus": {"buckets", "farthest"},
    "bart": {"base", "buckets", "farthest"},
    "t5": {"base"}, "vit": {"base"},
}  # fmt: skip
RATES = {"dropout", "attention_dropout", "hidden_dropout", "head_dropout", "init", "residual_factor"}


def attempt(family: Family, config: Any) -> tuple[dict[str, Any] | None, str]:
    try:
        return family.write(config), ""
    except ConfigError as error:
        return None, str(error)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_setting_is_expressed_or_refused_by_name(name: str) -> None:
    family, config = FAMILIES[name], read(name)
    settings = {field.name for field in fields(config)} - RATES
    assert settings <= OTHERS.keys(), "a setting that nobody tries"
    refused = set()
    for setting in sorted(settings - IDLE.get(name, set())):
        for value in OTHERS[setting]:
            try:
                changed = replace(config, **{setting: value})
            except ConfigError:
                continue  # no model of ours
            written, refusal = attempt(family, changed)
            if written is None:
                named = [one for one in settings if f"{one}=" in refusal]  # it, or one that does not go with it
                assert named or "the heads" in refusal, refusal
                refused.add(setting)
            else:
                names = {one for row in family.rows(changed) for one in row.theirs}
                assert family.read(written, names) == changed, f"{setting}={value!r} is lost"
    assert {"positions", "residual", "norm", "score", "feedforward"} <= refused


@pytest.mark.parametrize("name", FAMILIES)
def test_other_architectures_are_refused(name: str) -> None:
    config = read(name)
    for other in FAMILIES:
        if type(read(other)) is not type(config):
            with pytest.raises(ConfigError, match=f"{name} is not made of a {type(read(other)).__name__}"):
                FAMILIES[name].write(read(other))


MIXED = ["full_attention", "sliding_attention"]


@pytest.mark.parametrize(
    ("name", "says", "sentence"),
    [
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=True"),
        ("gpt2", {"add_cross_attention": True}, "add_cross_attention=True"),
        ("gpt2", {"activation_function": "mish"}, "activation_function='mish'"),
        ("llama", {"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "'yarn'"),
        ("llama", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "'dynamic'"),
        ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5"),
        ("llama", {"hidden_act": "tanh"}, "hidden_act='tanh'"),
        ("qwen2", {"use_sliding_window": True, "max_window_layers": 1}, "in some layers alone"),
        ("qwen2", {"use_sliding_window": True, "max_window_layers": 10**15, "num_hidden_layers": 10**16}, "in some"),
        ("qwen2", {"use_sliding_window": True, "layer_types": MIXED}, "in some layers alone"),
        ("mistral", {"layer_types": MIXED}, "in some layers alone"),
        ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key'"),
        ("bert", {"is_decoder": True}, "is_decoder=True"),
        ("roberta", {"hidden_act": "relu"}, "hidden_act='relu'"),
        ("roberta", {"tie_word_embeddings": False}, "tie_word_embeddings=False"),
        ("albert", {"num_hidden_groups": 2}, "num_hidden_groups=2"),
        ("albert", {"tie_word_embeddings": False}, "tie_word_embeddings=False"),
        ("marian", {"normalize_before": True}, "normalize_before=True"),
        ("marian", {"decoder_ffn_dim": 7}, "decoder_ffn_dim=7"),
        ("marian", {"tie_word_embeddings": False}, "tie_word_embeddings=False"),
        ("bart", {"normalize_before": True}, "normalize_before=True"),
        ("bart", {"decoder_attention_heads": 8}, "decoder_attention_heads=8"),
        ("bart", {"tie_word_embeddings": False}, "tie_word_embeddings=False"),
        ("pegasus", {"normalize_before": False}, "normalize_before=False"),
        ("pegasus", {"tie_word_embeddings": False}, "tie_word_embeddings=False"),
        ("t5", {"feed_forward_proj": "gated-tanh"}, "feed_forward_proj='gated-tanh'"),
        ("vit", {"image_size": [224, 112]}, "image_size="),
        ("vit", {"pooler_act": "relu"}, "pooler_act='relu'"),
    ],
)
def test_what_cannot_be_built_is_refused_by_name(name: str, says: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        read(name, **says)
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "heads", "sentence"),
    [
        ("bert", {"words": True, "classes": 3}, "words and classes"),
        ("roberta", {"words": True, "next_sentence": True, "pooler": "tanh"}, "words and next_sentence"),
        ("distilbert", {"classes": 3, "labels": 2}, "classes and labels"),
        ("albert", {"words": False, "next_sentence": True, "pooler": "tanh"}, "next_sentence"),
        ("bert", {"classes": 3, "pooling": "mean"}, "pooling='mean'"),
        ("bert", {"classes": 3, "pooler": "none"}, "pooler='none'"),
        ("vit", {"pooling": "mean"}, "pooling='mean'"),
    ],
)
def test_heads_that_no_class_of_theirs_has(name: str, heads: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        FAMILIES[name].write(replace(read(name), **heads))


def test_one_name_of_two_heads() -> None:
    """`classifier` is of texts or of tokens: by the name of the class; without one, by whether texts are pooled."""
    bert, names = FAMILIES["bert"], {"classifier.weight"}
    pooled = names | {"bert.pooler.dense.weight"}
    for_tokens, for_texts = ({"architectures": [f"BertFor{kind}Classification"]} for kind in ("Token", "Sequence"))
    assert bert.read({}, names).labels == bert.read(for_tokens, pooled).labels == 2
    assert bert.read({}, pooled).classes == bert.read(for_texts, names).classes == 2
    assert bert.read({"id2label": {"0": "a", "1": "b", "2": "c"}}, names).labels == 3


def test_one_of_several_tokens_that_end_a_text() -> None:
    assert read("llama", eos_token_id=[7, 8]).eos == 7
