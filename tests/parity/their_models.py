"""Tiny random models of `transformers`, of odd sizes, and what they answer to the same inputs as ours."""

from collections.abc import Callable
from typing import Any

import torch
import transformers as hf
from torch import Tensor, nn

from clearhead.models.decoder_only import DecoderOnly
from clearhead.models.encoder_decoder import EncoderDecoder
from clearhead.models.encoder_only import EncoderOnly
from clearhead.models.vit import Vit

WORDS, HIDDEN, LENGTH, LAYERS, CLASSES = 23, 28, 72, 3, 4
PAD, EOS = 22, 2

_drawn = torch.Generator().manual_seed(0)
TOKENS = torch.randint(3, PAD, (3, 7), generator=_drawn)
COUNTS = torch.tensor([7, 2, 4])
SOURCE = torch.randint(3, PAD, (3, 5), generator=_drawn)
SOURCE_COUNTS = torch.tensor([3, 5, 1])
SEGMENTS = (torch.arange(7) > 2).long().expand(3, -1)
IMAGES = torch.randn(2, 3, 8, 8, generator=_drawn)


def real(count_B: Tensor, length: int) -> Tensor:
    """1 where a row is not padding."""
    return (torch.arange(length) < count_B[:, None]).long()


def gpt2(**changes: Any) -> nn.Module:
    sizes = {"n_embd": 40, "n_head": 5, "n_layer": LAYERS, "n_inner": HIDDEN, "n_positions": LENGTH}
    marks = {"bos_token_id": 1, "eos_token_id": EOS, "pad_token_id": PAD}
    return hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=WORDS, **sizes, **marks, **changes))


def llama(model: str = "Llama", *, heads: int = 6, **changes: Any) -> nn.Module:
    sizes = {"hidden_size": 8 * heads, "num_attention_heads": heads, "num_hidden_layers": LAYERS}
    sizes |= {"vocab_size": WORDS, "intermediate_size": HIDDEN, "max_position_embeddings": LENGTH}
    marks = {"bos_token_id": 1, "eos_token_id": EOS, "pad_token_id": PAD}
    config = getattr(hf, f"{model}Config")(**{**sizes, **marks, **changes})
    return getattr(hf, f"{model}ForCausalLM")(config)


def llama3(**changes: Any) -> nn.Module:
    """Between the two bounds of the stretch there are pairs of columns, and beyond both."""
    rope = {"rope_type": "llama3", "rope_theta": 70.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    rope["original_max_position_embeddings"] = 24
    return llama(rope_parameters=rope, num_key_value_heads=2, head_dim=10, **changes)


def bert(head: str, model: str = "Bert", **changes: Any) -> nn.Module:
    sizes = {"hidden_size": 40, "num_attention_heads": 5, "num_hidden_layers": LAYERS, "intermediate_size": HIDDEN}
    sizes |= {"vocab_size": WORDS, "max_position_embeddings": LENGTH, "num_labels": CLASSES, "pad_token_id": PAD}
    if head == "ForPreTraining":
        sizes["num_labels"] = 2
    return getattr(hf, f"{model}{head}")(getattr(hf, f"{model}Config")(**{**sizes, **changes}))


def roberta(head: str, **changes: Any) -> nn.Module:
    return bert(head, "Roberta", **{"pad_token_id": 1, "type_vocab_size": 1, **changes})


def albert(head: str, **changes: Any) -> nn.Module:
    return bert(head, "Albert", embedding_size=12, **changes)


def distilbert(head: str, **changes: Any) -> nn.Module:
    sizes = {"dim": 40, "n_heads": 5, "n_layers": LAYERS, "hidden_dim": HIDDEN, "max_position_embeddings": LENGTH}
    config = hf.DistilBertConfig(vocab_size=WORDS, num_labels=CLASSES, pad_token_id=PAD, **sizes, **changes)
    return getattr(hf, f"DistilBert{head}")(config)


def pair(model: str, name: str, **changes: Any) -> nn.Module:
    sizes = {"d_model": 40, "encoder_layers": LAYERS, "decoder_layers": 2, "max_position_embeddings": LENGTH}
    sizes |= {f"{side}_{size}": n for side in ("encoder", "decoder") for size, n in
              (("ffn_dim", HIDDEN), ("attention_heads", 5))}  # fmt: skip
    marks = {"pad_token_id": PAD, "eos_token_id": EOS, "decoder_start_token_id": PAD, "forced_eos_token_id": None}
    config = getattr(hf, f"{model}Config")(vocab_size=WORDS, **sizes, **{**marks, **changes})
    theirs = getattr(hf, name)(config)
    theirs.final_logits_bias.normal_()
    return theirs


def t5(**changes: Any) -> nn.Module:
    sizes = {"d_model": 40, "d_kv": 6, "d_ff": HIDDEN, "num_layers": LAYERS, "num_decoder_layers": 2, "num_heads": 5}
    sizes |= {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 12, "vocab_size": WORDS}
    marks = {"pad_token_id": PAD, "eos_token_id": EOS, "decoder_start_token_id": PAD}
    theirs = hf.T5ForConditionalGeneration(hf.T5Config(**sizes, **marks, **changes))
    if not theirs.config.scale_decoder_outputs:  # v1.1 has two matrices; their constructor knows of one
        theirs.lm_head.weight = nn.Parameter(0.3 * torch.randn(WORDS, 40))
    return theirs


def vit(head: str, **changes: Any) -> nn.Module:
    sizes = {"hidden_size": 40, "num_attention_heads": 5, "num_hidden_layers": LAYERS, "intermediate_size": HIDDEN}
    return getattr(hf, f"ViT{head}")(hf.ViTConfig(image_size=8, patch_size=4, num_labels=CLASSES, **sizes, **changes))


CASES: dict[str, Callable[[], Any]] = {
    "gpt2": gpt2,
    "gpt2 untied": lambda: gpt2(tie_word_embeddings=False, scale_attn_weights=False, activation_function="relu"),
    "llama grouped": lambda: llama(num_key_value_heads=2, rms_norm_eps=1e-5),
    "llama 3": lambda: llama3(attention_bias=True, mlp_bias=True),
    "llama linear": lambda: llama(heads=5, rope_parameters={"rope_type": "linear", "factor": 2.5, "rope_theta": 500.0}),
    "smollm2": lambda: llama(heads=9, num_key_value_heads=3, tie_word_embeddings=True),
    "mistral": lambda: llama("Mistral", heads=5, num_key_value_heads=1, sliding_window=3),
    "qwen2": lambda: llama("Qwen2", heads=5, num_key_value_heads=5, tie_word_embeddings=True),
    "qwen2 windowed": lambda: llama(
        "Qwen2", num_key_value_heads=3, use_sliding_window=True, sliding_window=3, max_window_layers=0
    ),
    "bert": lambda: bert("Model"),
    "bert words": lambda: bert("ForMaskedLM", hidden_act="relu"),
    "bert pretraining": lambda: bert("ForPreTraining"),
    "bert next": lambda: bert("ForNextSentencePrediction", num_labels=2),
    "bert classes": lambda: bert("ForSequenceClassification", classifier_dropout=0.3),
    "bert labels": lambda: bert("ForTokenClassification"),
    "roberta": lambda: roberta("Model"),
    "roberta words": lambda: roberta("ForMaskedLM"),
    "roberta classes": lambda: roberta("ForSequenceClassification"),
    "roberta labels": lambda: roberta("ForTokenClassification", hidden_act="gelu_new"),
    "distilbert words": lambda: distilbert("ForMaskedLM", activation="relu"),
    "distilbert classes": lambda: distilbert("ForSequenceClassification"),
    "distilbert labels": lambda: distilbert("ForTokenClassification"),
    "albert words": lambda: albert("ForMaskedLM"),
    "albert pretraining": lambda: albert("ForPreTraining"),
    "albert classes": lambda: albert("ForSequenceClassification", inner_group_num=2),
    "albert labels": lambda: albert("ForTokenClassification"),
    "marian": lambda: pair("Marian", "MarianMTModel", scale_embedding=True, activation_function="swish"),
    "marian apart": lambda: pair(
        "Marian", "MarianMTModel", share_encoder_decoder_embeddings=False, decoder_vocab_size=WORDS + 6
    ),
    "pegasus": lambda: pair("Pegasus", "PegasusForConditionalGeneration", scale_embedding=True),
    "bart": lambda: pair("Bart", "BartForConditionalGeneration", scale_embedding=True),
    "t5": t5,
    "t5 v1.1": lambda: t5(feed_forward_proj="gated-gelu", tie_word_embeddings=False),
    "vit": lambda: vit("ForImageClassification"),
    "vit body": lambda: vit("Model", qkv_bias=False),
}
GENERATING = [name for name in CASES if name.split()[0] in
              ("gpt2", "llama", "smollm2", "mistral", "qwen2", "marian", "pegasus", "bart", "t5")]  # fmt: skip


@torch.no_grad()
def their_answers(model: Any) -> dict[str, Tensor]:
    """What they answer, at real positions."""
    own, kind = real(COUNTS, 7).bool(), type(model).__name__
    if kind.startswith("ViT"):
        given = model(IMAGES)
        body = {"vectors": given.last_hidden_state, "pooled": given.pooler_output} if "logits" not in given else {}
        return body or {"classes": given.logits}
    if model.config.is_encoder_decoder:
        source = {"input_ids": SOURCE, "attention_mask": real(SOURCE_COUNTS, 5)}
        return {"logits": model(**source, decoder_input_ids=TOKENS, decoder_attention_mask=own.long()).logits[own]}
    inputs = {"input_ids": TOKENS, "attention_mask": own.long()}
    if kind.endswith(("LMHeadModel", "ForCausalLM")):
        return {"logits": model(**inputs).logits[own]}
    if getattr(model.config, "type_vocab_size", 0) > 1:
        inputs["token_type_ids"] = SEGMENTS
    given = model(**inputs)
    named = {
        "Model": lambda: {"vectors": given.last_hidden_state[own], "pooled": given.pooler_output},
        "ForMaskedLM": lambda: {"words": given.logits[own]},
        "ForPreTraining": lambda: {
            "words": given.prediction_logits[own],
            "follows": given.seq_relationship_logits if "seq_relationship_logits" in given else given.sop_logits,
        },
        "ForNextSentencePrediction": lambda: {"follows": given.logits},
        "ForSequenceClassification": lambda: {"classes": given.logits},
        "ForTokenClassification": lambda: {"labels": given.logits[own]},
    }
    return next(answer() for end, answer in named.items() if kind.endswith(end))


@torch.no_grad()
def our_answers(model: Any) -> dict[str, Tensor]:
    """The same of ours, from all heads that there are."""
    own = real(COUNTS, 7).bool()
    if isinstance(model, Vit):
        vectors = model(IMAGES)
        body = {"vectors": vectors, "pooled": model.pooled(vectors)}
        return {"classes": model.classes(IMAGES)} if model.class_head else body
    if isinstance(model, EncoderDecoder):
        return {"logits": model(SOURCE, TOKENS, source_count_B=SOURCE_COUNTS, target_count_B=COUNTS)[own]}
    if isinstance(model, DecoderOnly):
        return {"logits": model(TOKENS, count_B=COUNTS)[own]}
    assert isinstance(model, EncoderOnly)
    c = model.config
    given: dict[str, Any] = {"count_B": COUNTS, "segment_BL": SEGMENTS if c.segments > 1 else None}
    hidden = model.hidden(TOKENS, **given)
    answers = {
        "words": lambda: model.words(TOKENS, **given)[own],
        "follows": lambda: model.follows(TOKENS, **given).flip(1),  # theirs have "it follows" first
        "classes": lambda: model.classes(TOKENS, **given),
        "labels": lambda: model.labels(TOKENS, **given)[own],
    }
    heads = {"words": c.words, "follows": c.next_sentence, "classes": c.classes, "labels": c.labels}
    if not any(heads.values()):
        return {"vectors": hidden[0][own], "pooled": model.pooled(*hidden)}
    return {name: answers[name]() for name, there in heads.items() if there}
