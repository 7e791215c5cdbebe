"""Draws one forward pass of a BERT, from two texts to the word for a mask.

    python docs/forward_pass.py MODEL FIRST_TEXT SECOND_TEXT OUTPUT.png

MODEL is a small BERT with both heads of pre-training, such as runs/quickstart/model, and one text
has a [MASK]. The picture of the guided reading is of "[MASK] no argument is given, the default is
used." and "the default is none."
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

import bert_jax
from bert_jax.files.figures import save_figure
from bert_jax.inference.model import LoadedModel
from bert_jax.models.encoder import RequestedOutputs
from bert_jax.models.heads.pretraining import PreTrainingOutput
from bert_jax.models.packed_rows import EncoderInputs
from bert_jax.models.transformer_layer import TransformerLayer
from bert_jax.tokenization import Encoding

WORDS = 5


def draw(model: LoadedModel, first: str, second: str) -> Figure:
    """The picture: embeddings, each layer's attention weights and output, answers of both heads."""
    (encoding,) = model.tokenizer.encode_batch([first], [second])
    output, encoded = model.module.apply(
        {"params": model.params},
        np.array([encoding.ids]),
        np.array([encoding.type_ids]),
        encoder_outputs=RequestedOutputs(hidden_states=True, attentions=True),
    )
    layers = len(encoded.attentions)
    figure = Figure(figsize=(14, 3.2 * (layers + 2)), layout="constrained")
    rows = figure.subfigures(layers + 2, 1)
    _draw_embeddings(rows[0], model, encoding, encoded.hidden_states[0, 0])
    for layer, row in enumerate(rows[1:-1]):
        row.suptitle(f"models/transformer_layer.py, layer {layer + 1}")
        heads = encoded.attentions[layer, 0]
        vectors = _parts_of_layer(model, layer, encoded.hidden_states[layer])
        all_axes = row.subplots(1, len(heads) + len(vectors))
        for number, (axes, weights) in enumerate(zip(all_axes, heads, strict=False), 1):
            axes.imshow(weights, cmap="Blues", vmin=0)
            axes.set_title(f"weights of head {number}, [T, T]", fontsize=9)
            axes.set_xticks(range(len(encoding)), encoding.tokens, rotation=90, fontsize=7)
            _name_lines(axes, encoding.tokens if number == 1 else ())
        for axes, (title, part) in zip(all_axes[len(heads) :], vectors.items(), strict=True):
            _draw_vectors(axes, title, part)
    _draw_answers(rows[-1], model, output, encoding)
    return figure


def _parts_of_layer(model: LoadedModel, number: int, hidden: jax.Array) -> dict[str, jax.Array]:
    """What a layer computes of its input [1, T, D], each [T, D]."""
    layer = TransformerLayer(model.config, model.module.execution)
    params = jax.tree.map(lambda leaf: leaf[number], model.params["bert"]["encoder"]["layers"])
    tokens = EncoderInputs(jnp.zeros(hidden.shape[:2], jnp.int32)).tokens()
    _, computed = layer.apply(
        {"params": params},
        hidden,
        tokens,
        deterministic=True,
        requested=RequestedOutputs(),
        number=jnp.int32(number),
        cache=None,
        capture_intermediates=True,
    )
    results = computed["intermediates"]

    def result_of(name: str) -> Any:
        return results[name]["__call__"][0]

    return {
        "attention, [T, D]": result_of("attention").hidden[0],
        "+ input, LayerNorm": result_of("attention_norm")[0],
        "feed-forward, [T, D]": result_of("output")[0],
        "+ its input, LayerNorm": result_of("output_norm")[0],
    }


def _draw_embeddings(
    row: SubFigure, model: LoadedModel, encoding: Encoding, embedded: jax.Array
) -> None:
    tables = model.params["bert"]["embeddings"]
    vectors = {
        "word, [T, D]": tables["word_embeddings"]["embedding"][np.array(encoding.ids)],
        "+ position": tables["position_embeddings"]["embedding"][: len(encoding)],
        "+ token type": tables["token_type_embeddings"]["embedding"][np.array(encoding.type_ids)],
        "= input of layer 1, after LayerNorm": embedded,
    }
    row.suptitle("models/embeddings.py")
    for axes, (title, rows) in zip(row.subplots(1, len(vectors)), vectors.items(), strict=True):
        _draw_vectors(axes, title, rows)
    _name_lines(row.axes[0], encoding.tokens)


def _draw_vectors(axes: Axes, title: str, vectors: jax.Array) -> None:
    """Vectors [T, D]: red is negative, blue is positive."""
    limit = np.abs(vectors).max()
    image: dict[str, Any] = {"cmap": "RdBu", "aspect": "auto", "interpolation": "nearest"}
    axes.imshow(vectors, vmin=-limit, vmax=limit, **image)
    axes.set_title(title, fontsize=9)
    axes.set_xticks([])
    _name_lines(axes, ())


def _name_lines(axes: Axes, tokens: Sequence[str]) -> None:
    axes.set_yticks(range(len(tokens)), tokens, fontsize=7)


def _draw_answers(
    row: SubFigure, model: LoadedModel, output: PreTrainingOutput, encoding: Encoding
) -> None:
    row.suptitle("models/heads/pretraining.py")
    words, pair = row.subplots(1, 2)
    logits = output.prediction_logits[0, encoding.tokens.index("[MASK]")]
    scores, best = jax.lax.top_k(jax.nn.softmax(logits), WORDS)
    words.barh([model.tokenizer.id_to_token(int(word)) for word in best[::-1]], scores[::-1])
    words.set_title(f"words for the mask: softmax of {len(logits):,} logits", fontsize=9)
    labels = ["B follows A", "B is random"]
    pair.barh(labels[::-1], jax.nn.softmax(output.seq_relationship_logits[0])[::-1])
    pair.set_title("next sentence: softmax of 2 logits of [CLS]", fontsize=9)
    pair.set_xlim(0, 1)


if __name__ == "__main__":
    directory, text_a, text_b, file = sys.argv[1:]
    save_figure(Path(file), draw(bert_jax.load(directory), text_a, text_b), dpi=80)
