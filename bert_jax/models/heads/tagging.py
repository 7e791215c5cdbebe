"""The head of a classifier of tokens (BERT paper, section 5.3), optionally with a CRF."""

import dataclasses

import flax.linen as nn
import jax
import numpy as np

from bert_jax.errors import OptionError
from bert_jax.models.comparison import (
    IGNORED_LABEL,
    Comparison,
    DrawnBatch,
    Labels,
    cross_entropy_of_logits,
)
from bert_jax.models.crf import PARAMETERS as CRF_PARAMETERS
from bert_jax.models.encoder import EncoderOutput
from bert_jax.models.encoder_with_head import Classifier
from bert_jax.models.head import Head
from bert_jax.models.head_options import HeadOptions


@dataclasses.dataclass(frozen=True)
class TaggingOptions(HeadOptions):
    """The head of tagging.

    Attributes:
        use_crf: whether it has a CRF, see `models.crf`; Hugging Face's models do not.
        dropout_of_hidden: whether the dropout is `hidden_dropout_prob` (DistilBERT), not the
            classifier's.
    """

    keys = ("use_crf",)
    use_crf: bool = False
    dropout_of_hidden: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.use_crf, bool):
            raise OptionError("model.use_crf", self.use_crf, "it must be True or False")


class TaggingModel(Classifier):
    """Logits of the labels of every token.

    With `use_crf` it also has the parameters of `models.crf.CRFParams`; loss and decoding use them.
    """

    def _rate(self) -> float:
        if self.config.head_options(TaggingOptions).dropout_of_hidden:
            return self.config.hidden_dropout_prob
        return super()._rate()

    def setup(self) -> None:
        super().setup()
        if self.config.head_options(TaggingOptions).use_crf:
            labels = self.config.num_labels
            shapes = ((labels, labels), (labels,), (labels,))
            for name, shape in zip(CRF_PARAMETERS, shapes, strict=True):
                self.param(name, nn.initializers.normal(self.config.initializer_range), shape)

    def _head(self, encoded: EncoderOutput, deterministic: bool) -> jax.Array:
        """Logits, float32 [B, T, C]."""
        return self._classify(encoded.last_hidden_state, deterministic)


def _labels(draw: DrawnBatch) -> Labels:
    tags = draw.classes(draw.ids.size, draw.config.num_labels).reshape(draw.ids.shape)
    return {"labels": np.where(draw.is_word, tags, IGNORED_LABEL).astype(np.int32)}


HEAD = Head(
    TaggingModel,  # heads/classification.py has the axes of "classifier"
    makes_vectors=False,
    axes=(("crf_(transitions|start|end)", ()),),
    decay=(("crf_(transitions|start|end)", False),),  # the scores act as biases
    shown_by=(("classifier/kernel",),),
    options=TaggingOptions,
    label_parameters=("classifier/", "crf_"),
    label_kernels=("classifier/kernel",),
    comparison=Comparison(("logits",), ("tagging",), _labels, ("logits",), cross_entropy_of_logits),
)
