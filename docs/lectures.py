"""The demonstrations of a lecture about encoder-decoders, as functions and as pictures.

    python docs/lectures.py DIRECTORY

writes the pictures of docs/lectures.md. `tests/test_lectures.py` tests what the page says.
"""

import functools
import itertools
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bert_jax.families.family import find_family
from bert_jax.files.figures import save_figure
from bert_jax.generation.decoder import DecoderFunctions
from bert_jax.generation.next_token import TokenRules
from bert_jax.generation.options import SearchOptions
from bert_jax.generation.rows import rows_of_prompts
from bert_jax.generation.search import search
from bert_jax.models.attention_inputs import AttentionMask
from bert_jax.models.decoding import EncoderMemory
from bert_jax.models.encoder import Encoder, RequestedOutputs, init_params
from bert_jax.models.heads.text_to_text import TextToTextModel
from bert_jax.tasks.base.model_decoder import generate_from_texts
from bert_jax.tasks.base.token_losses import smoothed_cross_entropy

START, FIRST_LETTER = 0, 1
LETTERS = "abcdefghijklmnop"
LENGTH = 12
STEPS, ROWS = 300, 32


class LastStateModel(TextToTextModel):
    """A decoder that sees the last of the encoder's S states only, as without attention."""

    def _decode(self, inputs: Any, memory: EncoderMemory, *args: Any, **options: Any) -> Any:
        hidden, tokens = memory.hidden, memory.tokens
        last = AttentionMask(
            tokens.query_ids[:, :1], tokens.key_ids[:, -1:], tokens.key_positions[:, -1:]
        )
        hidden = None if hidden is None else hidden[:, -1:]
        return super()._decode(inputs, EncoderMemory(hidden, last), *args, **options)


class Trained(NamedTuple):
    """A small encoder-decoder, its parameters, and the loss of each step."""

    module: TextToTextModel
    params: Any
    losses: np.ndarray


def copy(texts: np.ndarray) -> np.ndarray:
    """The task of writing a text again."""
    return texts


def reverse(texts: np.ndarray) -> np.ndarray:
    """The task of writing a text from its end."""
    return texts[:, ::-1]


def draw_texts(seed: int, rows: int = ROWS) -> np.ndarray:
    """Random letters, int32 [B, T]."""
    letters = np.random.default_rng(seed).integers(len(LETTERS), size=(rows, LENGTH))
    return (FIRST_LETTER + letters).astype(np.int32)


def decoder_inputs(targets: jax.Array) -> jax.Array:
    """For each target the token before it, int32 [B, U]."""
    return jnp.pad(targets[:, :-1], ((0, 0), (1, 0)), constant_values=START)


@functools.cache
def train(
    task: Callable[[np.ndarray], np.ndarray],
    model: type[TextToTextModel] = TextToTextModel,
    steps: int = STEPS,
) -> Trained:
    """Trains one layer of encoder and decoder on random letters."""
    sizes = {"hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 128}
    sizes |= {"num_hidden_layers": 1, "decoder_layers": 1, "decoder_ffn_dim": 128}
    config = find_family("marian").new_config(
        "tiny",
        vocab_size=FIRST_LETTER + len(LETTERS),
        max_position_embeddings=LENGTH + 1,
        pad_token_id=START,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        **sizes,
    )
    module = model(config)
    params = jax.jit(functools.partial(init_params, module))(jax.random.key(0))
    optimizer = optax.adam(optax.warmup_constant_schedule(0.0, 2e-3, 50))

    def loss(params: Any, texts: jax.Array, targets: jax.Array) -> jax.Array:
        inputs = {"decoder_input_ids": decoder_inputs(targets)}
        logits = module.apply({"params": params}, texts, **inputs)
        return smoothed_cross_entropy(logits, targets, 0.0, config.vocab_size).mean()

    @jax.jit
    def step(params: Any, state: Any, texts: jax.Array, targets: jax.Array) -> Any:
        value, gradient = jax.value_and_grad(loss)(params, texts, targets)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(params, updates), state, value

    state, losses = optimizer.init(params), []
    for number in range(steps):
        texts = draw_texts(number + 1)
        params, state, value = step(params, state, texts, task(texts))
        losses.append(value)
    return Trained(module, params, np.array(losses))


def accuracy(trained: Trained, task: Callable[[np.ndarray], np.ndarray]) -> float:
    """The share of letters that greedy search writes correctly for new texts."""
    texts = draw_texts(0)
    batch = {"input_ids": texts, "attention_mask": np.ones_like(texts)}
    generated = generate_from_texts(
        trained.params,
        batch,
        module=trained.module,
        start=START,
        rules=TokenRules(),
        options=SearchOptions(max_new_tokens=LENGTH),
    )
    return float((np.asarray(generated.token_ids)[:, 0] == task(texts)).mean())


class Attentions(NamedTuple):
    """Attention weights of the last layer for one text, [N, T, S] each."""

    encoder: np.ndarray
    decoder: np.ndarray
    cross: np.ndarray


def attentions(
    trained: Trained, task: Callable[[np.ndarray], np.ndarray], text: np.ndarray
) -> Attentions:
    """The weights while the target of a text [1, T] is written."""
    _, encoded, decoded = trained.module.apply(
        {"params": trained.params},
        text,
        decoder_input_ids=decoder_inputs(task(text)),
        encoder_outputs=RequestedOutputs(attentions=True),
    )
    weights = encoded.attentions, decoded.attentions, decoded.cross_attentions
    return Attentions(*(np.asarray(each[-1, 0]) for each in weights))


def equivariance_error(*, with_positions: bool) -> float:
    """The largest difference of permuted outputs and outputs of permuted tokens, of a random BERT.

    Args:
        with_positions: whether it has position embeddings; without, their table is 0.
    """
    config = find_family("bert").new_config("tiny", vocab_size=30)
    module = Encoder(config, add_pooling_layer=False)
    params = jax.jit(functools.partial(init_params, module))(jax.random.key(0))
    if not with_positions:
        params["embeddings"]["position_embeddings"]["embedding"] *= 0
    texts = draw_texts(0, 1)
    order = np.random.default_rng(0).permutation(LENGTH)
    encode = jax.jit(lambda texts: module.apply({"params": params}, texts).last_hidden_state)
    return float(np.abs(encode(texts)[:, order] - encode(texts[:, order])).max())


def smoothed_target(label: int, smoothing: float, size: int) -> np.ndarray:
    """The distribution [V] that label smoothing asks for: the gradient of the loss says it.

    The gradient with respect to the logits is softmax(logits) - target.
    """
    logits = jnp.zeros(size)

    def loss(logits: jax.Array) -> jax.Array:
        return smoothed_cross_entropy(logits, jnp.int32(label), smoothing, size)

    return np.asarray(jax.nn.softmax(logits) - jax.grad(loss)(logits))


def smoothed_loss(probability: np.ndarray, smoothing: float, size: int) -> np.ndarray:
    """The loss of tokens with this probability, where all others share the rest equally."""
    rest = np.broadcast_to((1 - probability[:, None]) / (size - 1), (len(probability), size - 1))
    logits = jnp.log(jnp.concatenate([probability[:, None], rest], axis=1))
    labels = jnp.zeros(len(probability), jnp.int32)
    return np.asarray(smoothed_cross_entropy(logits, labels, smoothing, size))


# The probability of each of three words after the word before, for the first word and two more.
WORDS = ("A", "B", "C")
TREE = np.float32(
    [
        [[0.45, 0.40, 0.15]] * 3,
        [[0.40, 0.30, 0.30], [0.60, 0.20, 0.20], [0.03, 0.02, 0.95]],
        [[0.50, 0.25, 0.25], [0.30, 0.40, 0.30], [0.02, 0.03, 0.95]],
    ]
)


def probability_of(words: Sequence[int]) -> float:
    """The probability of a text of the tree."""
    before = (0, *words[:-1])
    return math.prod(
        float(TREE[n, a, b]) for n, (a, b) in enumerate(zip(before, words, strict=True))
    )


def exhaustive_search() -> tuple[str, float]:
    """The most probable of all texts, and its probability."""
    every = itertools.product(range(len(WORDS)), repeat=len(TREE))
    best = max(every, key=probability_of)
    return _text(best), probability_of(best)


def beam_search(beams: int) -> tuple[str, float]:
    """What a search with so many beams finds (1: greedy), and its probability."""
    logits = jnp.log(TREE)

    def step(cache: tuple[jax.Array], tokens: jax.Array) -> tuple[jax.Array, tuple[jax.Array]]:
        (counts,) = cache
        return logits[jnp.minimum(counts, len(TREE) - 1), tokens], (counts + 1,)

    def reorder(cache: tuple[jax.Array], rows: jax.Array) -> tuple[jax.Array]:
        return (rows_of_prompts(cache[0], rows, 1),)

    options = SearchOptions(max_new_tokens=len(TREE), num_beams=beams, length_penalty=0.0)
    decoder, prompt = DecoderFunctions(step, reorder), jnp.zeros((1, 1), jnp.int32)

    @jax.jit
    def run() -> Any:
        cache = (jnp.ones(1, jnp.int32),)
        return search(decoder, logits[:1, 0], cache, prompt, TokenRules(), options)

    words = np.asarray(run().token_ids)[0, 0].tolist()
    return _text(words), probability_of(words)


def _text(words: Sequence[int]) -> str:
    return " ".join(WORDS[word] for word in words)


def draw_copy() -> Figure:
    """The losses of a decoder with the whole memory and with the last state."""
    figure = Figure(figsize=(6, 3), layout="constrained")
    axes = figure.subplots()
    models = (("all states of the encoder", TextToTextModel), ("its last state", LastStateModel))
    for name, model in models:
        trained = train(copy, model)
        share = accuracy(trained, copy)
        axes.plot(trained.losses, label=f"{name}: {share:.0%} of the letters are correct")
    axes.axhline(math.log(len(LETTERS)), color="grey", linestyle=":", label="a guess: ln 16")
    axes.set_xlabel("step")
    axes.set_ylabel("loss of a letter")
    axes.set_ylim(0)
    axes.legend(fontsize=8)
    return figure


def draw_attentions() -> Figure:
    """Weights of encoder, decoder and cross-attention, for copying and for writing in reverse."""
    text = draw_texts(0, 1)
    figure = Figure(figsize=(9, 6.5), layout="constrained")
    rows = figure.subfigures(2, 1)
    for row, task in zip(rows, (copy, reverse), strict=True):
        weights = attentions(train(task), task, text)
        source = _letters(text)
        written = ["start", *_letters(task(text))[:-1]]
        row.suptitle(f"{task.__name__}: mean of the heads")
        titles = ("encoder", "decoder, masked", "cross-attention")
        keys, queries = (source, written, source), (source, written, written)
        panels = zip(row.subplots(1, 3), titles, weights, keys, queries, strict=True)
        for axes, title, values, below, beside in panels:
            axes.imshow(values.mean(axis=0), cmap="Blues", vmin=0)
            axes.set_title(f"{title}, {list(values.shape[1:])}", fontsize=9)
            axes.set_xticks(range(LENGTH), below, fontsize=7)
            axes.set_yticks(range(LENGTH), beside, fontsize=7)
    return figure


def _letters(ids: np.ndarray) -> list[str]:
    """The letters of a text [1, T]."""
    return [LETTERS[each - FIRST_LETTER] for each in ids[0]]


def draw_smoothing() -> Figure:
    """The target of a word with and without smoothing, and the loss of its probability."""
    figure = Figure(figsize=(8, 2.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    probability = np.linspace(0.3, 0.999, 200).astype(np.float32)
    for place, smoothing in ((-0.2, 0.0), (0.2, 0.1)):
        left.bar(np.arange(8) + place, smoothed_target(2, smoothing, 8), width=0.4)
        losses = smoothed_loss(probability, smoothing, 8)
        right.plot(probability, losses, label=f"smoothing {smoothing}")
    left.set_title("target of word 2 of 8", fontsize=9)
    left.set_xlabel("word")
    right.set_title("loss", fontsize=9)
    right.set_xlabel("probability of word 2")
    right.legend(fontsize=8)
    return figure


def draw_search() -> Figure:
    """All texts of the tree, and what each search finds."""
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    axes = figure.subplots()
    for length in range(1, len(TREE) + 1):
        for words in itertools.product(range(len(WORDS)), repeat=length):
            _draw_branch(axes, words)
    found = (
        ("greedy", beam_search(1), "C1"),
        ("2 beams", beam_search(2), "C0"),
        ("exhaustive, 3 beams", exhaustive_search(), "C2"),
    )
    for name, (text, probability), colour in found:
        words = [WORDS.index(word) for word in text.split()]
        points = [_place(words[:length]) for length in range(len(words) + 1)]
        label = f"{name}: {text}, probability {probability:.3f}"
        axes.plot(*zip(*points, strict=True), color=colour, linewidth=3, alpha=0.6, label=label)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, fontsize=8)
    axes.axis("off")
    return figure


def _place(words: Sequence[int]) -> tuple[float, float]:
    """Where a node of the tree is drawn."""
    middle = (len(WORDS) - 1) / 2
    offsets = ((word - middle) / len(WORDS) ** n for n, word in enumerate(words))
    return sum(offsets), -float(len(words))


def _draw_branch(axes: Axes, words: Sequence[int]) -> None:
    """The last word of a node, its probability, and the line from its parent."""
    (x, y), (above, top) = _place(words), _place(words[:-1])
    axes.plot([above, x], [top, y], color="lightgrey", linewidth=1, zorder=0)
    probability = TREE[len(words) - 1, words[-2] if len(words) > 1 else 0, words[-1]]
    axes.text(x, y, f"{WORDS[words[-1]]}\n{probability:.2f}", ha="center", va="top", fontsize=6)


PICTURES = {
    "copy": draw_copy,
    "attention": draw_attentions,
    "smoothing": draw_smoothing,
    "search": draw_search,
}

if __name__ == "__main__":
    for picture, draw in PICTURES.items():
        save_figure(Path(sys.argv[1]) / f"lectures_{picture}.png", draw(), dpi=80)
