"""Vectors of words from their characters: convolutions, highway layers, a linear layer (ELMo).

Kim et al., 2016 (https://arxiv.org/abs/1508.06615), as used by Jozefowicz et al., 2016
(https://arxiv.org/abs/1602.02410) and Peters et al., 2018 (https://arxiv.org/abs/1802.05365). For a
word with the characters c:

    x = act(max over positions(convolution of each width(embedding(c)))), joined
    x = g relu(W x + b) + (1 - g) x,  g = σ(V x + d)      for each highway layer
    x = W x + b                                           of width D / 2

Source: allenai/bilm-tf, bilm/model.py; allennlp, modules/elmo.py.
"""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.errors import OptionError, require_at_least, require_between
from bert_jax.models.activations import ACTIVATIONS
from bert_jax.models.config import EncoderConfig
from bert_jax.models.embeddings import checked_range
from bert_jax.models.execution import Execution
from bert_jax.models.head_options import HeadOptions
from bert_jax.models.kernels.matmul import affine
from bert_jax.models.layers import dense, kernel_init
from bert_jax.models.packed_rows import EncoderInputs

CHARACTERS = 261
"""The number of characters: 256 bytes, the ends of sentences and words, and padding of words.

In `EncoderInputs.characters` they are the ids from 1 on; 0 is no character.
"""

MOST_CHARACTERS = 50
"""Y, the most characters of a word: longer words are cut."""

MOST_FILTERS, MOST_HIGHWAY_LAYERS = 16, 8


@dataclasses.dataclass(frozen=True)
class CharacterOptions(HeadOptions):
    """How an encoder reads words by their characters.

    Attributes:
        char_filters: for each convolution its width, in characters, and its number of outputs;
            empty: the encoder reads tokens with ids.
        char_embedding_size: width of the embeddings of characters.
        num_highway_layers: number of highway layers.
    """

    keys = ("char_filters", "char_embedding_size", "num_highway_layers")
    char_filters: tuple[tuple[int, int], ...] = ()
    char_embedding_size: int = 16
    num_highway_layers: int = 2

    def __post_init__(self) -> None:
        filters = self.char_filters
        is_list = isinstance(filters, list | tuple)
        if not is_list or not all(isinstance(f, list | tuple) and len(f) == 2 for f in filters):
            rule = "give pairs of a width and a number of outputs, such as [[1, 32], [2, 64]]"
            raise OptionError("model.char_filters", filters, rule)
        require_between("model.char_filters", len(filters), 0, MOST_FILTERS)
        for width, outputs in filters:
            require_at_least("model.char_filters", width, 1, MOST_CHARACTERS)
            require_at_least("model.char_filters", outputs, 1, 1 << 20)
        object.__setattr__(self, "char_filters", tuple(map(tuple, filters)))
        require_at_least("model.char_embedding_size", self.char_embedding_size, 1)
        require_at_least(
            "model.num_highway_layers", self.num_highway_layers, 0, MOST_HIGHWAY_LAYERS
        )

    def check(self, config: EncoderConfig) -> None:
        if self.char_filters and config.hidden_size % 2:
            rule = "it must be even: two halves read words in two directions"
            raise OptionError("model.hidden_size", config.hidden_size, rule)

    @property
    def outputs(self) -> int:
        """The number of outputs of all convolutions."""
        return sum(outputs for _, outputs in self.char_filters)


class CharacterCNN(nn.Module):
    """The embeddings of words that are given by their characters.

    The vector of a word, of width D / 2, stands in both halves of the result: each is read by one
    direction of the layers. If the convolutions have D / 2 outputs, there is no linear layer.
    """

    config: EncoderConfig
    execution: Execution

    @nn.compact
    def __call__(
        self,
        inputs: EncoderInputs,
        indices: jax.Array,
        deterministic: bool,
        word_embeddings: jax.Array | None = None,
    ) -> jax.Array:
        """The vectors of words, [B, T, D], from `inputs` alone; for the arguments see `Embeddings`.

        Raises:
            ValueError: see `checked_characters`.
        """
        config, execution = self.config, self.execution
        characters = inputs.packed(checked_characters(inputs))  # BTY
        options = config.head_options(CharacterOptions)
        table = nn.Embed(
            CHARACTERS,
            options.char_embedding_size,
            embedding_init=kernel_init(config),
            name="character_embeddings",
        ).embedding
        spelled = jnp.take(table, jnp.maximum(characters - 1, 0), axis=0)  # BTYE
        spelled = jnp.where(characters[..., None] > 0, spelled, 0)
        spelled = spelled.reshape(-1, *spelled.shape[2:]).astype(execution.dtype)
        act = ACTIVATIONS[config.hidden_act]
        found = [
            act(
                Convolution(config, outputs, width, name=f"character_convolution_{number}")(spelled)
            )
            for number, (width, outputs) in enumerate(options.char_filters)
        ]
        words = jnp.concatenate(found, axis=-1)
        for layer in range(options.num_highway_layers):
            name = f"character_highway_{layer}"
            gate = dense(config, execution, options.outputs, f"{name}_carry")(words)
            new = dense(config, execution, options.outputs, f"{name}_transform")(words)
            gate = nn.sigmoid(gate)
            words = gate * nn.relu(new) + (1 - gate) * words
        if options.outputs != config.hidden_size // 2:
            words = dense(config, execution, config.hidden_size // 2, "character_projection")(words)
        words = words.reshape(*characters.shape[:2], -1)
        return jnp.concatenate([words, words], axis=-1)


class Convolution(nn.Module):
    """A convolution over the characters of a word, and its largest value at any position.

    Attributes:
        config: architecture of the model.
        outputs: number of outputs.
        width: number of neighbouring characters that it reads.
    """

    config: EncoderConfig
    outputs: int
    width: int

    @nn.compact
    def __call__(self, spelled: jax.Array) -> jax.Array:
        """[M, Y, E] for M words → [M, outputs]."""
        inputs = spelled.shape[-1]
        # The first axis, of size 1, is as in the files.
        shape = (1, self.width, inputs, self.outputs)
        kernel = self.param("kernel", kernel_init(self.config, axes=3), shape)
        bias = self.param("bias", nn.initializers.zeros, (self.outputs,))
        count = spelled.shape[1] - self.width + 1
        near = [spelled[:, start : start + count] for start in range(self.width)]
        windows = jnp.concatenate(near, axis=-1)
        matrix = kernel.reshape(self.width * inputs, self.outputs)
        return affine(1, windows, matrix, bias).max(axis=1)


def reads_characters(config: EncoderConfig) -> bool:
    """Whether an encoder reads words by their characters, and not tokens by their ids."""
    return bool(config.head_options(CharacterOptions).char_filters)


def checked_characters(inputs: EncoderInputs) -> jax.Array:
    """The characters of tokens, int32 [B, T, Y], with ids from 0 to `CHARACTERS`.

    Raises:
        ValueError: there are none, or an id is out of this range.
    """
    if inputs.characters is None:
        raise ValueError(
            "this model reads words by their characters: give it the characters of its "
            "tokenizer, as model.inputs(texts) has them"
        )
    checked_range("characters", inputs.characters, CHARACTERS + 1)
    return inputs.characters


def flops_per_word(config: EncoderConfig) -> float:
    """FLOPs of the matrix products of a word, in one forward pass."""
    options = config.head_options(CharacterOptions)
    size, width = options.char_embedding_size, config.hidden_size // 2
    convolutions = sum(
        (MOST_CHARACTERS - near + 1) * near * size * outputs
        for near, outputs in options.char_filters
    )
    highway = 2 * options.num_highway_layers * options.outputs**2
    projection = options.outputs * width if options.outputs != width else 0
    return 2.0 * (convolutions + highway + projection)
