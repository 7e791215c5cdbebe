"""GPT: Radford et al., 2018 ("Improving language understanding by generative pre-training").

`model_type` "openai-gpt". Source: Hugging Face transformers,
models/openai/modeling_openai.py.
"""

from bert_jax.families import gpt2
from bert_jax.families.family import Family
from bert_jax.tokenization.interface import OPENAI_GPT

FAMILY = Family(
    model_type="openai-gpt",
    class_names={
        "causal_lm": "OpenAIGPTLMHeadModel",
        "classification": "OpenAIGPTForSequenceClassification",
        "encoder": "OpenAIGPTModel",
    },
    huggingface=gpt2.names("tokens_embed", "positions_embed"),
    sizes={name: gpt2.FAMILY.sizes[name] for name in ("tiny", "mini", "small", "base")},
    defaults=gpt2.DEFAULTS,
    constants=gpt2.CONSTANTS,
    optional_fields=("embedding_dropout",),
    required_fields=gpt2.REQUIRED_FIELDS,
    field_names=gpt2.FIELD_NAMES | {"hidden_act": "afn"},
    activation_names={"gelu": "gelu_new"},
    intermediate_factor=4,
    tokenizer_kind=OPENAI_GPT,
    token_types=False,
)
