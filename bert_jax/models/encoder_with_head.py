"""The encoder with a head, and with a classifier (BERT paper, figures 1 and 4).

All models have one call, see `EncoderWithHead.__call__`; training, evaluation and prediction use it
by `model_inputs` and `apply_model`. The parameters of the encoder are in the scope `ENCODER_SCOPE`,
the parameters of the head next to it.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
from flax import struct

from bert_jax.errors import require_one_of
from bert_jax.models.activations import ACTIVATIONS
from bert_jax.models.config import ENCODER_SCOPE, EncoderConfig
from bert_jax.models.dropout import Dropout
from bert_jax.models.encoder import Encoder, EncoderOutput, RequestedOutputs
from bert_jax.models.execution import Execution
from bert_jax.models.global_tokens import global_tokens_of_task
from bert_jax.models.head_options import HeadOptions
from bert_jax.models.layer_mix import MIXES, LayerMix
from bert_jax.models.layers import Dense, dense, gather_positions, layer_norm
from bert_jax.models.packed_rows import EncoderInputs, PackedRows


@struct.dataclass
class ModelInputs(EncoderInputs):
    """Tokens, and the masked ones that the heads of pre-training predict, int32 [B, P].

    Attributes:
        masked_lm_positions: positions; None: word logits are computed of all tokens.
        masked_lm_ids: the original tokens, see `ReplacedTokenPretraining`.
        masked_lm_weights: float32 [B, P], 0 for unused positions, see `ReplacedTokenPretraining`.
        span_left_positions: position before the span of each, see `SpanBoundaryModel`.
        span_right_positions: position after the span of each.
    """

    masked_lm_positions: jax.Array | None = None
    masked_lm_ids: jax.Array | None = None
    masked_lm_weights: jax.Array | None = None
    span_left_positions: jax.Array | None = None
    span_right_positions: jax.Array | None = None


class EncoderWithHead(nn.Module):
    """An encoder; each model adds its head.

    The names of the parts in the parameter tree must not change: they seed initialisation and
    dropout, and runs are saved under them.
    """

    config: EncoderConfig
    execution: Execution = Execution()

    global_tokens = ""  # which tokens a model with such tokens has, see `global_tokens_of_task`

    def setup(self) -> None:
        self.encoder = Encoder(
            self.config, self.execution, add_pooling_layer=self._has_pooler(), name=ENCODER_SCOPE
        )

    def _has_pooler(self) -> bool:
        """Whether the head takes the pooler's output."""
        return False

    def _mix(self) -> LayerMix | None:
        """What the head reads in place of the last layer."""
        return None

    def __call__(
        self,
        *arrays: Any,
        deterministic: bool = True,
        encoder_outputs: RequestedOutputs | None = None,
        **named: Any,
    ) -> Any:
        """Encodes tokens or images and applies the head; each model's `_head` documents the result.

        The inputs are `ModelInputs`, see `from_call`; for multiple choice the first four arrays are
        int32 [B, K, T]. In training, without `deterministic`, there is dropout from the RNG stream
        "dropout". With `encoder_outputs`, values that the encoder returns beside its last layer,
        the result is a pair: the output of the head, and the `EncoderOutput` of all rows.
        """
        inputs = ModelInputs.from_call(*arrays, **named)
        outputs, encoded = self._apply(inputs.as_rows(), deterministic, encoder_outputs)
        leading = inputs.leading
        outputs = jax.tree.map(lambda array: array.reshape(*leading, *array.shape[1:]), outputs)
        return outputs if encoder_outputs is None else (outputs, encoded)

    def _apply(
        self, inputs: ModelInputs, deterministic: bool, requested: RequestedOutputs | None
    ) -> tuple[Any, EncoderOutput]:
        """The outputs of the head and of the encoder."""
        asks = self.config.attention_window is not None and inputs.global_attention_mask is None
        if asks and self.global_tokens:
            separator = self.config.sep_token_id
            mask, most = global_tokens_of_task(self.global_tokens, inputs.input_ids, separator)
            inputs = dataclasses.replace(
                inputs, global_attention_mask=mask, most_global_tokens=most
            )
        encoded = self.encoder.encode(inputs, deterministic, requested, mix=self._mix())
        read = encoded
        if inputs.masked_lm_positions is not None:
            # Computed at all T positions, the vocabulary head would be a fifth of the work.
            chosen = gather_positions(encoded.last_hidden_state, inputs.masked_lm_positions)  # BPD
            read = encoded._replace(last_hidden_state=chosen)
        return self._head(read, deterministic), encoded

    def _head(self, encoded: EncoderOutput, deterministic: bool) -> Any:
        raise NotImplementedError

    def _dense(self, features: int, name: str) -> Dense:
        return dense(self.config, self.execution, features, name)


@dataclasses.dataclass(frozen=True)
class ClassifierOptions(HeadOptions):
    """The head of classification.

    Attributes:
        act: activation of a linear layer on [CLS] in the head; None: it takes the pooler's output.
        input_dropout: whether there is dropout before that layer, too.
        of_last_token: whether the head is one layer without a bias, on the last token that is not
            padding (GPT).
        layer_mix: one of `layer_mix.MIXES`, what the head reads in place of the last layer;
            Hugging Face's models have none.
    """

    keys = ("layer_mix",)
    act: str | None = None
    input_dropout: bool = False
    of_last_token: bool = False
    layer_mix: str = MIXES[0]

    def __post_init__(self) -> None:
        require_one_of("model.layer_mix", self.layer_mix, MIXES)


def output_layer(
    config: EncoderConfig, execution: Execution, outputs: int, name: str, *, use_bias: bool = True
) -> Dense:
    """The last layer of a classifier, in float32: scores of bfloat16 would often be equal."""
    execution = dataclasses.replace(execution, dtype="float32")
    return dense(config, execution, outputs, name, use_bias=use_bias)


class PredictionHead(nn.Module):
    """The hidden layer of heads with `head_act`: linear layer, activation, LayerNorm."""

    config: EncoderConfig
    execution: Execution

    @nn.compact
    def __call__(self, hidden: jax.Array) -> jax.Array:
        """[..., D] → [..., D]."""
        config = self.config
        assert config.head_act is not None
        layer = dense(
            config, self.execution, config.hidden_size, "dense", use_bias=config.has_biases
        )
        hidden = ACTIVATIONS[config.head_act](layer(hidden))
        return layer_norm(config, self.execution, "layer_norm")(hidden)


class TransformedOutput(nn.Module):
    """Linear layer, activation, and linear layer to some outputs, with dropout before either.

    Attributes:
        config: architecture of the model.
        execution: how it is computed.
        outputs: number of outputs.
        act: activation.
        input_rate: rate of the dropout before the first layer.
        rate: rate of the dropout before the second layer.
    """

    config: EncoderConfig
    execution: Execution
    outputs: int
    act: str
    input_rate: float = 0.0
    rate: float = 0.0

    @nn.compact
    def __call__(self, vectors: jax.Array, deterministic: bool) -> jax.Array:
        """[..., D] → float32 [..., outputs]."""
        vectors = Dropout(self.input_rate)(vectors, deterministic=deterministic)
        vectors = dense(self.config, self.execution, self.config.hidden_size, "dense")(vectors)
        vectors = ACTIVATIONS[self.act](vectors)
        vectors = Dropout(self.rate)(vectors, deterministic=deterministic)
        return output_layer(self.config, self.execution, self.outputs, "out_proj")(vectors)


def classifier_dropout(config: EncoderConfig) -> float:
    """The rate of the dropout before a classifier."""
    rate = config.classifier_dropout
    return config.hidden_dropout_prob if rate is None else rate


class Classifier(EncoderWithHead):
    """Dropout and a linear layer on vectors of the encoder."""

    def setup(self) -> None:
        super().setup()
        if self.config.head_act is not None:
            self.prediction_head = PredictionHead(self.config, self.execution)
        options = self.config.head_options(ClassifierOptions)
        if options.layer_mix != MIXES[0]:
            self.layer_mix = LayerMix(options.layer_mix == "normalized")
        if self._has_transform():
            assert options.act is not None
            rate = classifier_dropout(self.config)
            self.classifier: Any = TransformedOutput(
                self.config,
                self.execution,
                self._num_outputs(),
                options.act,
                input_rate=rate if options.input_dropout else 0.0,
                rate=rate,
            )
        else:
            self.dropout = Dropout(self._rate())
            self.classifier = output_layer(
                self.config,
                self.execution,
                self._num_outputs(),
                "classifier",
                use_bias=self._has_bias(),
            )

    def _mix(self) -> LayerMix | None:
        has_mix = self.config.head_options(ClassifierOptions).layer_mix != MIXES[0]
        return self.layer_mix if has_mix else None

    def _num_outputs(self) -> int:
        return self.config.num_labels

    def _rate(self) -> float:
        return classifier_dropout(self.config)

    def _has_transform(self) -> bool:
        """Whether the head has a linear layer on [CLS] instead of the pooler."""
        return False

    def _has_bias(self) -> bool:
        """Whether the last layer has a bias."""
        return True

    def _classify(self, vectors: jax.Array, deterministic: bool) -> jax.Array:
        """[..., D] → float32 [..., C]."""
        if self.config.head_act is not None:
            vectors = self.prediction_head(vectors)
        vectors = self.dropout(vectors, deterministic=deterministic)
        return self.classifier(vectors)

    def _classify_text(self, encoded: EncoderOutput, deterministic: bool) -> jax.Array:
        """Float32 [B, C]."""
        if self._has_transform():
            return self.classifier(encoded.last_hidden_state[:, 0], deterministic)
        return self._classify(encoded.pooled, deterministic)


def model_inputs(batch: Mapping[str, Any], kind: type[EncoderInputs] = ModelInputs) -> Any:
    """The inputs of a model of this kind for a batch, which may have other arrays, too."""
    names = (field.name for field in dataclasses.fields(kind))
    arrays = {name: batch[name] for name in names if name in batch}
    return kind(**arrays, packed_rows=PackedRows.from_batch(batch))


def row_kinds(batch: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The arrays of each kind of row of a batch, without labels and the like.

    The arrays of the only kind have plain names, and it is called "". Rows of several kinds, such
    as queries and passages, have a prefix: "query/input_ids", "passage/input_ids". Each has its own
    K and T; B is the same, so `row_indices`, which have no prefix, belong to every kind.
    """
    shared = {"row_indices": batch["row_indices"]} if "row_indices" in batch else {}
    kinds: dict[str, dict[str, Any]] = {}
    for name, array in batch.items():
        kind, _, plain = name.rpartition("/")
        kinds.setdefault(kind, {})[plain] = array
    inputs = {"input_ids", "pixel_values"}
    return {kind: shared | rows for kind, rows in kinds.items() if inputs & rows.keys()}


def token_shape(rows: Mapping[str, Any], config: EncoderConfig) -> tuple[int, ...]:
    """B, …, T of the rows of one kind, also of images, whose tokens depend on the model."""
    images = config.images
    if images is None:
        return tuple(rows["input_ids"].shape)
    count, height, width, _ = rows["pixel_values"].shape
    return count, images.num_tokens((height, width))


def apply_model(
    module: nn.Module,
    params: Any,
    inputs: Any,
    dropout_key: jax.Array | None = None,
    encoder_outputs: RequestedOutputs | None = None,
) -> Any:
    """The outputs of a model.

    Args:
        module: a model with any head.
        params: its parameters.
        inputs: its inputs, as from `model_inputs`.
        dropout_key: key of the dropout masks; None: without dropout.
        encoder_outputs: see `EncoderWithHead`.
    """
    options: dict[str, Any] = (
        {} if encoder_outputs is None else {"encoder_outputs": encoder_outputs}
    )
    return module.apply(
        {"params": params},
        inputs,
        **options,
        deterministic=dropout_key is None,
        rngs=None if dropout_key is None else {"dropout": dropout_key},
    )
