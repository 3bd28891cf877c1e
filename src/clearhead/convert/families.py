"""Every architecture that can be read and written, by the name that a config.json gives it."""

from collections.abc import Mapping
from types import MappingProxyType

from clearhead.convert.family import Family
from clearhead.convert.hf_albert import ALBERT
from clearhead.convert.hf_bart import BART
from clearhead.convert.hf_bert import BERT
from clearhead.convert.hf_distilbert import DISTILBERT
from clearhead.convert.hf_gpt2 import GPT2
from clearhead.convert.hf_llama import LLAMA, MISTRAL, QWEN2
from clearhead.convert.hf_marian import MARIAN
from clearhead.convert.hf_pegasus import PEGASUS
from clearhead.convert.hf_roberta import ROBERTA
from clearhead.convert.hf_t5 import T5
from clearhead.convert.hf_vit import VIT

__all__ = ["FAMILIES"]

# Where several can express a model of ours, the first is the one to write it as.
ALL = (GPT2, LLAMA, MISTRAL, QWEN2, BERT, ROBERTA, DISTILBERT, ALBERT, MARIAN, PEGASUS, BART, T5, VIT)

FAMILIES: Mapping[str, Family] = MappingProxyType({family.name: family for family in ALL})
