"""The architecture of an encoder: its sizes and switches, under Hugging Face's field names."""

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any

from bert_jax.errors import OptionError

# Layers, width, heads. tiny to medium: google-research/bert, "24 smaller models" (Turc et al.,
# 2019); base and large: the paper, section 3. Feed-forward width is 4 D, head width is 64.
SIZES: dict[str, tuple[int, int, int]] = {
    "tiny": (2, 128, 2),
    "mini": (4, 256, 4),
    "small": (4, 512, 8),
    "medium": (8, 512, 8),
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
}

# "gelu" is the exact (erf) form, the two after it are names of the tanh form.
ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "swish", "tanh")

ENCODER_SCOPE = "bert"
"""The name of the encoder among the parameters of a model with a head, in every family.

Initialisation and dropout fold it into their keys, and runs are saved under it: with another name
the same seed would give other numbers.
"""

HEAD_SCOPES = ("mlm_head", "nsp_head", "classifier", "qa_outputs")
"""The names of the heads beside it, likewise; a CRF's parameters are `crf.PARAMETERS`."""

# Fields of `EncoderConfig` that the family sets: they are keys of no file and of no config.
FAMILY_FIELDS = ("position_offset",)


class Head(enum.Enum):
    """What stands on an encoder; `architectures.MODULES` has the model of each."""

    ENCODER = "encoder"  # nothing
    PRETRAINING = "pretraining"
    MASKED_LM = "masked_lm"
    NEXT_SENTENCE = "next_sentence"
    CLASSIFICATION = "classification"
    TAGGING = "tagging"
    QUESTION_ANSWERING = "question_answering"
    MULTIPLE_CHOICE = "multiple_choice"


@dataclasses.dataclass(frozen=True)
class EncoderConfig:
    """The fields of Hugging Face's `config.json` that change the function, and `use_crf`.

    Attributes:
        vocab_size: V, number of token ids.
        hidden_size: D, width of the hidden states.
        num_hidden_layers: L.
        num_attention_heads: N; divides D, the head width H is D / N.
        intermediate_size: F, width inside the feed-forward block.
        hidden_act: activation of the feed-forward block and of the MLM head, see `ACTIVATIONS`.
        hidden_dropout_prob: dropout after the embeddings and after each sub-layer.
        attention_probs_dropout_prob: dropout on the attention weights.
        max_position_embeddings: rows of the position table.
        type_vocab_size: number of token types, the paper's segments A and B: 2.
        initializer_range: standard deviation of the truncated normal initialisation.
        layer_norm_eps: added to the variance in every LayerNorm.
        pad_token_id: id of [PAD].
        tie_word_embeddings: whether the decoder of the MLM head is the table of word embeddings.
        classifier_dropout: dropout before a classifier; None: `hidden_dropout_prob`.
        num_labels: C, outputs of a classifier.
        use_crf: whether a classifier of tokens has a CRF, see `models.crf`. Hugging Face's models
            have no such field.
        position_offset: the row of the position table for the first token of a text.
    """

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pad_token_id: int = 0
    tie_word_embeddings: bool = True
    classifier_dropout: float | None = None
    num_labels: int = 2
    use_crf: bool = False
    position_offset: int = 0

    def __post_init__(self) -> None:
        for name in (
            "vocab_size",
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
            "max_position_embeddings",
            "type_vocab_size",
            "num_labels",
        ):
            if getattr(self, name) < 1:
                raise OptionError(name, getattr(self, name), "it must be at least 1")
        if self.hidden_size % self.num_attention_heads:
            rule = f"it must be a multiple of {{num_attention_heads}}, {self.num_attention_heads}"
            raise OptionError("hidden_size", self.hidden_size, rule)
        if self.hidden_act not in ACTIVATIONS:
            raise OptionError("hidden_act", self.hidden_act, f"known are {', '.join(ACTIVATIONS)}")
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"):
            if not 0 <= (getattr(self, name) or 0) < 1:
                raise OptionError(name, getattr(self, name), "it must lie in [0, 1)")

    @property
    def head_dim(self) -> int:
        """H, width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def max_length(self) -> int:
        """The most tokens of a text, special tokens included."""
        return self.max_position_embeddings - self.position_offset

    @classmethod
    def from_size(cls, size: str, **fields: Any) -> "EncoderConfig":
        """A named size, with any field replaced.

        Raises:
            UserError: the size or a field is unknown.
        """
        if size not in SIZES:
            raise OptionError("size", size, f"known are {', '.join(SIZES)}")
        layers, width, heads = SIZES[size]
        named = {
            "hidden_size": width,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "intermediate_size": 4 * width,
        }
        return cls.from_fields({**named, **fields})

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> "EncoderConfig":
        """A config from a mapping in which every key must be a field.

        Raises:
            UserError: a key is not a field.
        """
        known = [field.name for field in dataclasses.fields(cls)]
        for key, value in fields.items():
            if key not in known:
                problem = f"{key} is not a field of a model"
                raise OptionError(key, value, f"known are {', '.join(known)}", problem)
            default = getattr(cls, key)
            expected = float if default is None else type(default)
            is_whole = isinstance(value, int) and not isinstance(value, bool)
            fits = type(value) is expected or (expected is float and is_whole)
            if not fits and not (value is None and default is None):
                raise OptionError(key, value, f"it must be a {expected.__name__}")
        return cls(**fields)
