"""The head of a classifier of images: a linear layer on [CLS] (ViT, section 3.1)."""

from typing import Any

import jax

from bert_jax.models.config import ENCODER_SCOPE
from bert_jax.models.encoder import EncoderOutput
from bert_jax.models.encoder_with_head import EncoderWithHead, output_layer
from bert_jax.models.head import Head
from bert_jax.models.heads import classification


class ImageClassificationModel(EncoderWithHead):
    """Logits of the labels of an image."""

    def setup(self) -> None:
        super().setup()
        labels = self.config.num_labels
        self.classifier: Any = output_layer(self.config, self.execution, labels, "classifier")

    def _head(self, encoded: EncoderOutput, deterministic: bool) -> jax.Array:
        """Logits, float32 [B, C]."""
        return self.classifier(encoded.last_hidden_state[:, 0])


HEAD = Head(
    ImageClassificationModel,  # heads/classification.py has the axes of "classifier"
    makes_vectors=False,
    shown_by=((f"{ENCODER_SCOPE}/embeddings/patches/kernel", "classifier/kernel"),),
    label_parameters=("classifier/",),
    label_kernels=("classifier/kernel",),
    comparison=classification.HEAD.comparison,
)
