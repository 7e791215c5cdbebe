"""The architecture of an encoder: its sizes and switches, under Hugging Face's field names."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, TypeVar

from bert_jax.errors import OptionError
from bert_jax.models.activations import GATED_ACTIVATIONS
from bert_jax.models.field_ranges import check_field
from bert_jax.models.head_options import HeadOptions
from bert_jax.models.image_options import ImageOptions

ENCODER_SCOPE = "bert"
"""The name of the encoder among the parameters of a model with a head, in every family.

It must not change: initialisation and dropout fold it into their keys, and runs are saved under it.
"""

Options = TypeVar("Options", bound=HeadOptions)


@dataclasses.dataclass(frozen=True)
class EncoderConfig:
    """The fields of Hugging Face's `config.json` that change the function of an encoder.

    All families are one encoder with these fields. Those of `models.head.COMMON_FIELDS` are in the
    files of all; of the others some are in the files of a family, and its module sets the rest.

    Attributes:
        vocab_size: V, number of token ids.
        hidden_size: D, width of the hidden states.
        num_hidden_layers: L, number of layers.
        num_attention_heads: N; must divide D; the head width H is D / N.
        intermediate_size: F, width inside the feed-forward block.
        hidden_act: activation of the feed-forward block and of the MLM head, see `ACTIVATIONS`;
            of a gated feed-forward block, see `GATED_ACTIVATIONS`.
        hidden_dropout_prob: dropout after the embeddings and after each sub-layer.
        attention_probs_dropout_prob: dropout on the attention weights.
        max_position_embeddings: rows of the position table, without `extra_position_rows`; with
            positions of another kind, the maximum number of tokens.
        type_vocab_size: number of token types; 2 for the paper's segments A and B.
        initializer_range: standard deviation of the truncated normal initialisation.
        layer_norm_eps: added to the variance in every LayerNorm.
        pad_token_id: id of [PAD].
        tie_word_embeddings: whether the decoder of the MLM head is the table of word embeddings.
        classifier_dropout: dropout before a classifier; None: `hidden_dropout_prob`.
        num_labels: C, number of outputs of a classifier.
        embedding_size: E, width of the embeddings; None: D.
        num_hidden_groups: G, number of different layers: layer i has the parameters of group
            i / (L / G) (ALBERT); None: L.
        intra_bottleneck_size: width inside a layer of the kind "bottleneck"; None: D.
        num_feedforward_networks: number of feed-forward blocks of such a layer.
        normalization_type: "layer_norm", or "no_norm", a scale and bias alone (MobileBERT); the MLM
            head always has a LayerNorm.
        classifier_activation: whether the pooler is a linear layer with tanh on [CLS]; otherwise
            see `classifier_pooling`.
        positions_after_padding: whether a token's row of the position table is its number among the
            tokens that are not padding, plus `pad_token_id`, and padding has the row `pad_token_id`
            (RoBERTa); otherwise rows count from 0.
        trigram_input: whether the input is a linear layer on the embeddings of the token after, the
            token and the token before (MobileBERT), and positions and token types have width D.
        project_embeddings: whether there is a linear layer from E to D, even if they are equal.
        layer_kind: "transformer", "bottleneck" (MobileBERT), "lstm", "gru", "projected_lstm".
        attention_output_dropout: whether there is dropout after the attention sub-layer.
        feed_forward_dropout: whether there is dropout after the feed-forward sub-layer.
        has_pooler: whether the family has a pooler.
        heads: options of heads that are not their defaults, see `head_options`.
        attention_head_size: H; None: D / N.
        relative_attention_num_buckets, relative_attention_max_distance: see `RelativePositions`.
        embedding_dropout: dropout after the embeddings; None: `hidden_dropout_prob`.
        activation_dropout: dropout inside the feed-forward block.
        scale_embedding: whether word embeddings are multiplied by sqrt(D) (Vaswani et al., 3.4).
        norm_first: whether each sub-layer reads normalised input, and the last layer's output is
            normalised (pre-LN); otherwise the sum after each sub-layer is normalised (post-LN).
        embedding_norm: whether the sum of the embeddings is normalised.
        has_biases: whether the linear layers of attention and feed-forward have biases, and the
            hidden layers of heads with `head_act`.
        has_inner_biases: with `has_biases`, whether the linear layers of the feed-forward block
            from D to F have biases, too.
        has_norm_biases: whether a LayerNorm has a bias.
        has_first_norm: with `norm_first`, whether the first sub-layer of the first layer reads
            normalised input, too (ModernBERT: it reads the normalised embeddings as they are).
        gated_feed_forward: whether the block is gated where `hidden_act` is one of `ACTIVATIONS`.
        position_kind: "learned" (a table) or "sinusoidal" (Vaswani et al., section 3.5), which are
            added to the embeddings; "rotary" (see `models.rotary_positions`), or "relative" (none
            of these: T5 has the bias alone).
        relative_bias: whether attention scores have T5's bias by distance: `RelativePositions`.
        extra_position_rows: rows of the position table before the first position (BART).
        scale_attention: whether attention scores are divided by sqrt(H).
        final_dropout: whether there is dropout after the last layer's normalisation (T5).
        is_causal: whether no token sees a later one.
        has_cross_attention: whether each layer also attends to an encoder's output.
        initial_values: standard deviations of new matrices, see `initial_deviation`.
        global_attn_every_n_layers: n; layer i, from 0, is global if n divides i: each token sees
            all others. 1: all layers.
        local_attention: W; in the other layers a token sees at most W // 2 tokens on each side.
        attention_window: for each layer an even W: a token sees W / 2 tokens on each side, and the
            global tokens of the input, see `models.global_tokens` (Longformer); None: there are no
            such layers.
        sep_token_id: id of the separator by which heads know the global tokens; None: none does.
        global_rope_theta, local_rope_theta: base of the rotary positions in these layers.
        rope_factor: how many times longer texts they are stretched for, see `rotary_positions`.
        head_act: activation of the hidden layer, with a LayerNorm after it, that every head has
            before its last layer (ModernBERT); None: heads have their own forms.
        classifier_pooling: the vector of a text where the pooler has no linear layer: the hidden
            state of [CLS], "cls", or the mean over the tokens, "mean".
        project_before_norm: whether the embeddings of width E become those of width D before they
            are normalised, by a linear layer without bias (DeBERTa).
        masks_padding: whether unseen tokens have the input 0 and see all tokens equally (DeBERTa).
        position_biased_input: whether "learned" positions are added to the embeddings.
        relative_attention: whether attention scores depend on embeddings of relative positions, see
            `models.disentangled_attention`, which explains the next five fields, too.
        pos_att_type: the terms of the scores with positions: "c2p", "p2c", "c2p|p2c", or "" (none).
        share_att_key: whether positions have the linear layers of the tokens.
        position_buckets: number of buckets of the distances to one side; below 1: each has its own.
        max_relative_positions: longest distance; below 1: `max_position_embeddings`.
        norm_rel_ebd: "layer_norm" if their embeddings are normalised, or "none".
        conv_kernel_size: the number of tokens, odd, of a convolution beside the first layer, see
            `models.convolution`; 0: there is none.
        conv_act: its activation.
        bidirectional: whether half of D is for reading backwards, see `models.recurrent_layer`.
        recurrent_dropout: dropout on the states between two tokens, see there.
        qkv_bias: with `has_biases`, whether queries, keys and values have biases, too.
        reverse_input: whether they read a text from its end (Sutskever et al., 2014, section 3.3).
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
    embedding_size: int | None = None
    num_hidden_groups: int | None = None
    intra_bottleneck_size: int | None = None
    num_feedforward_networks: int = 1
    normalization_type: str = "layer_norm"
    classifier_activation: bool = True
    positions_after_padding: bool = False
    trigram_input: bool = False
    project_embeddings: bool = False
    layer_kind: str = "transformer"
    attention_output_dropout: bool = True
    feed_forward_dropout: bool = True
    has_pooler: bool = True
    heads: tuple[HeadOptions, ...] = ()
    attention_head_size: int | None = None
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128
    embedding_dropout: float | None = None
    activation_dropout: float = 0.0
    scale_embedding: bool = False
    norm_first: bool = False
    embedding_norm: bool = True
    has_biases: bool = True
    has_inner_biases: bool = True
    position_kind: str = "learned"
    relative_bias: bool = False
    extra_position_rows: int = 0
    scale_attention: bool = True
    final_dropout: bool = False
    is_causal: bool = False
    has_cross_attention: bool = False
    initial_values: str = "equal"
    has_norm_biases: bool = True
    has_first_norm: bool = True
    gated_feed_forward: bool = False
    global_attn_every_n_layers: int = 1
    local_attention: int = 128
    global_rope_theta: float = 160_000.0
    local_rope_theta: float = 10_000.0
    rope_factor: float = 1.0
    head_act: str | None = None
    classifier_pooling: str = "cls"
    project_before_norm: bool = False
    masks_padding: bool = False
    position_biased_input: bool = True
    relative_attention: bool = False
    pos_att_type: str = ""
    share_att_key: bool = True
    position_buckets: int = -1
    max_relative_positions: int = -1
    norm_rel_ebd: str = "none"
    conv_kernel_size: int = 0
    conv_act: str = "tanh"
    attention_window: tuple[int, ...] | None = None
    sep_token_id: int | None = None
    bidirectional: bool = False
    recurrent_dropout: float = 0.0
    qkv_bias: bool = True
    reverse_input: bool = False

    def __post_init__(self) -> None:
        check_fields(vars(self))
        for name, whole, part in (
            (self.width_field, self.attention_size, "num_attention_heads"),
            ("num_hidden_layers", self.num_hidden_layers, "num_hidden_groups"),
        ):
            divisor = getattr(self, part)
            is_split = part == "num_hidden_groups" or self.attention_head_size is None
            if is_split and divisor is not None and whole % divisor:
                rule = f"it must be a multiple of {{model.{part}}}, {divisor}"
                raise OptionError(f"model.{name}", whole, rule)
        if self.position_kind == "rotary" and self.head_dim % 2:
            rule = f"rotary positions turn pairs of values, but a head has {self.head_dim}"
            raise OptionError(f"model.{self.width_field}", self.attention_size, rule)
        if self.max_length < 1:
            raise OptionError(
                "model.max_position_embeddings",
                self.max_position_embeddings,
                f"it must be greater than {self.position_offset}, the rows before the first token",
            )
        if self.relative_attention and not self.pos_att_type:
            rule = "{model.relative_attention} is True: give c2p, p2c or c2p|p2c"
            raise OptionError("model.pos_att_type", self.pos_att_type, rule)
        if self.position_buckets >= 1 and not 2 <= self.position_buckets < 2 * self.distances - 2:
            rule = f"it must be from 2 to {2 * self.distances - 3}, for {self.distances} distances"
            raise OptionError("model.position_buckets", self.position_buckets, rule)
        if self.conv_kernel_size and self.conv_kernel_size % 2 == 0:
            raise OptionError("model.conv_kernel_size", self.conv_kernel_size, "it must be odd")
        for options in self.heads:
            options.check(self)
        by_kind = {type(options): options for options in reversed(self.heads)}
        chosen = (options for kind, options in by_kind.items() if options != kind())
        ordered = sorted(chosen, key=lambda options: type(options).__name__)
        object.__setattr__(self, "heads", tuple(ordered))

    def head_options(self, kind: type[Options]) -> Options:
        """The options of a head, by their class."""
        return next((each for each in self.heads if isinstance(each, kind)), kind())

    @property
    def is_recurrent(self) -> bool:
        """Whether layers read the tokens one after the other, and have no attention."""
        return self.layer_kind in ("lstm", "gru", "projected_lstm")

    @property
    def images(self) -> ImageOptions | None:
        """The images that the encoder reads; None: it reads text."""
        options = self.head_options(ImageOptions)
        return None if options.image_size is None else options

    @property
    def width_field(self) -> str:
        """The field that is `attention_size`."""
        return "hidden_size" if self.intra_bottleneck_size is None else "intra_bottleneck_size"

    @property
    def attention_size(self) -> int:
        """The width of all attention heads together: D, except in a bottleneck."""
        size: int = getattr(self, self.width_field)
        return size

    @property
    def head_dim(self) -> int:
        """H, width of one attention head."""
        return self.attention_head_size or self.attention_size // self.num_attention_heads

    @property
    def attention_scale(self) -> float:
        """1 / sqrt(H), the factor of the attention scores; 1 without `scale_attention`.

        Also divided by the root of the number of terms whose sum a score is, see `pos_att_type`.
        """
        terms = 1 + len(self.position_terms)
        return 1 / math.sqrt(self.head_dim * terms) if self.scale_attention else 1.0

    @property
    def position_terms(self) -> tuple[str, ...]:
        """The terms of `pos_att_type`."""
        return tuple(filter(None, self.pos_att_type.split("|")))

    @property
    def distances(self) -> int:
        """The number of distances to one side that `relative_attention` tells apart, from 0."""
        longest = self.max_relative_positions
        return self.max_position_embeddings if longest < 1 else longest

    def is_global(self, layer: Any) -> Any:
        """Whether tokens see all others in a layer, counted from 0: of an int, or int32 array."""
        return layer % self.global_attn_every_n_layers == 0

    @property
    def windows(self) -> tuple[int | None, ...]:
        """Of each layer the most positions between two tokens that see each other; None: all."""
        if self.attention_window is not None:
            return tuple(width // 2 for width in self.attention_window)
        near = self.local_attention // 2
        layers = range(self.num_hidden_layers)
        return tuple(None if self.is_global(layer) else near for layer in layers)

    @property
    def has_rotations_by_layer(self) -> bool:
        """Whether rotary positions have another base in layers with a window."""
        return self.global_attn_every_n_layers > 1

    @property
    def is_gated(self) -> bool:
        """Whether the feed-forward block is the product of two linear layers, one activated."""
        return self.gated_feed_forward or self.hidden_act in GATED_ACTIVATIONS

    @property
    def embedding_width(self) -> int:
        """E, width of the word embeddings."""
        return self.hidden_size if self.embedding_size is None else self.embedding_size

    @property
    def has_embedding_projection(self) -> bool:
        """Whether a linear layer brings the sum of the embeddings from E to D."""
        is_narrow = self.embedding_width != self.hidden_size and not self.trigram_input
        return is_narrow or self.project_embeddings

    @property
    def num_stacked_layers(self) -> int:
        """The number of layers with different parameters."""
        return self.num_hidden_layers if self.num_hidden_groups is None else self.num_hidden_groups

    @property
    def position_offset(self) -> int:
        """The row of the position table for the first token of a text."""
        return self.pad_token_id + 1 if self.positions_after_padding else self.extra_position_rows

    @property
    def position_rows(self) -> int | None:
        """The number of rows of the position table; None without one."""
        is_table = self.position_kind == "learned" and self.position_biased_input
        return self.max_position_embeddings + self.extra_position_rows if is_table else None

    @property
    def max_length(self) -> int:
        """The maximum number of tokens of a text, special tokens included."""
        return self.max_position_embeddings + self.extra_position_rows - self.position_offset


def check_fields(fields: Mapping[str, Any]) -> None:
    """Checks the type and the range of each of some fields of an `EncoderConfig`.

    Raises:
        OptionError: a value has another type, or is out of range.
    """
    kinds = {field.name: field.type for field in dataclasses.fields(EncoderConfig)}
    for name, value in fields.items():
        check_field(name, value, kinds[name], getattr(EncoderConfig, name))
