"""New words, more positions and fewer layers, in numbers that can be checked by hand."""

import dataclasses

import hypothesis
import hypothesis.extra.numpy
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from bert_jax.errors import UserError
from bert_jax.models.surgery import add_vocabulary, extend_positions, keep_layers
from tests.random_params import small_config

CONFIG = small_config(vocab_size=4, hidden_size=2, num_attention_heads=1, max_position_embeddings=3)
WORDS = np.float32([[1, 2], [3, 4], [5, 8], [7, 0]])
DECODER = np.float32([[0, 1], [0, 2], [0, 4], [0, 8]])
BIAS = np.float32([1, 0, -1, 3])
POSITIONS = np.float32([[0.5, 1], [1.5, 2], [2.5, 3]])


@pytest.fixture
def params():
    """The parameters of a model with an untied decoder that surgery reads."""
    return {
        "bert": {
            "embeddings": {
                "word_embeddings": {"embedding": WORDS.copy()},
                "position_embeddings": {"embedding": POSITIONS.copy()},
                "token_type_embeddings": {"embedding": np.float32([[1, 1], [2, 2]])},
                "layer_norm": {"scale": np.float32([1, 1]), "bias": np.float32([0, 0])},
            }
        },
        "mlm_head": {
            "bias": BIAS.copy(),
            "decoder": DECODER.copy(),
            "dense": {"kernel": np.float32([[1, 2], [3, 4]]), "bias": np.float32([5, 6])},
        },
    }


def word_table(params) -> np.ndarray:
    return np.asarray(params["bert"]["embeddings"]["word_embeddings"]["embedding"])


def position_table(params) -> np.ndarray:
    return np.asarray(params["bert"]["embeddings"]["position_embeddings"]["embedding"])


def test_a_new_word_is_the_mean_of_its_pieces(params):
    grown, config = add_vocabulary(params, CONFIG, [[0, 1], [2, 2, 3], [3]], first_id=4)

    assert config == dataclasses.replace(CONFIG, vocab_size=7)
    third = np.float32(17) / np.float32(3)
    assert word_table(grown).tolist() == [
        *[[1, 2], [3, 4], [5, 8], [7, 0]],
        [2, 3],  # (1 + 3) / 2, (2 + 4) / 2
        [third, np.float32(16) / np.float32(3)],  # (5 + 5 + 7) / 3, (8 + 8 + 0) / 3
        [7, 0],
    ]
    assert grown["mlm_head"]["bias"].tolist() == [1, 0, -1, 3, 0.5, np.float32(1) / 3, 3]
    # Means of rows of the decoder, not of the embeddings.
    assert grown["mlm_head"]["decoder"].tolist() == [
        *[[0, 1], [0, 2], [0, 4], [0, 8]],
        [0, 1.5],
        [0, np.float32(16) / np.float32(3)],
        [0, 8],
    ]


def test_other_parameters_and_the_input_stay(params):
    before = jax.tree.map(np.copy, params)

    for grown, _ in (
        add_vocabulary(params, CONFIG, [[0, 1]], first_id=3),
        extend_positions(params, CONFIG, 7),
    ):
        old, new = flatten_dict(params, sep="/"), flatten_dict(grown, sep="/")
        assert set(old) == set(new)
        changed = {name for name in old if old[name] is not new[name]}
        assert changed in (
            {"bert/embeddings/word_embeddings/embedding", "mlm_head/bias", "mlm_head/decoder"},
            {"bert/embeddings/position_embeddings/embedding"},
        )
    jax.tree.map(np.testing.assert_array_equal, params, before)


def test_rows_beyond_the_tokenizers_ids_are_taken_first(params):
    # The tokenizer has ids 0 and 1; rows 2 and 3 only make the table even.
    grown, config = add_vocabulary(params, CONFIG, [[0, 1]], first_id=2)
    assert config == CONFIG
    assert word_table(grown).tolist() == [[1, 2], [3, 4], [2, 3], [7, 0]]
    assert grown["mlm_head"]["bias"].tolist() == [1, 0, 0.5, 3]


def test_float16_is_kept_and_the_mean_is_summed_in_float32():
    # In float16 the sum overflows at 65,504.
    table = np.float16([[40000, 1], [40000, 2], [40000, 4]])
    params = {"embeddings": {"word_embeddings": {"embedding": table}}}
    config = dataclasses.replace(CONFIG, vocab_size=3)
    for array in (table, jnp.asarray(table)):
        params["embeddings"]["word_embeddings"]["embedding"] = array
        grown, _ = add_vocabulary(params, config, [[0, 1, 2]], first_id=3)
        table = grown["embeddings"]["word_embeddings"]["embedding"]
        assert table.dtype == np.float16
        assert table[3].tolist() == [40000, np.float16(7 / 3)]


@pytest.mark.parametrize(
    ("pieces", "first_id", "message"),
    [
        ([[0]], 5, "the first new word has id 5, but the model has 4 rows: the tokenizer is of an"),
        ([[0], []], 4, r"new word 1 has the pieces \[\]; give at least one, each in \[0, 4\)"),
        ([[4]], 4, r"new word 0 has the pieces \[4\]"),
        ([[0, 3]], 3, r"new word 0 has the pieces \[0, 3\]; give at least one, each in \[0, 3\)"),
        ([[-1]], 4, r"new word 0 has the pieces \[-1\]"),
    ],
)
def test_pieces_that_are_not_older_words_are_refused(params, pieces, first_id, message):
    with pytest.raises(UserError, match=message):
        add_vocabulary(params, CONFIG, pieces, first_id)


def test_positions_are_repeated(params):
    grown, config = extend_positions(params, CONFIG, 8)

    assert config == dataclasses.replace(CONFIG, max_position_embeddings=8)
    assert position_table(grown).tolist() == [
        *[[0.5, 1], [1.5, 2], [2.5, 3]],
        *[[0.5, 1], [1.5, 2], [2.5, 3]],
        *[[0.5, 1], [1.5, 2]],
    ]
    with pytest.raises(UserError, match="positions is 2, but the model has 3 and positions"):
        extend_positions(params, CONFIG, 2)
    # As in RoBERTa, whose first rows are of padding.
    config = dataclasses.replace(CONFIG, positions_after_padding=True, pad_token_id=0)
    grown, config = extend_positions(params, config, 4)
    assert config.max_position_embeddings == 5
    assert position_table(grown).tolist() == [
        [0.5, 1], *[[1.5, 2], [2.5, 3]], *[[1.5, 2], [2.5, 3]],
    ]  # fmt: skip


TABLES = hypothesis.extra.numpy.arrays(
    np.float32, (6, 2), elements=st.floats(-100, 100, width=32, allow_subnormal=False)
)


@hypothesis.given(
    TABLES,
    st.integers(1, 6),
    st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=9), max_size=5),
)
@hypothesis.settings(max_examples=40)
def test_old_words_stay_and_new_ones_lie_between_their_pieces(table, first_id, pieces):
    pieces = [[piece % first_id for piece in ids] for ids in pieces]
    params = {"embeddings": {"word_embeddings": {"embedding": table}}}
    config = dataclasses.replace(CONFIG, vocab_size=6)

    grown, config = add_vocabulary(params, config, pieces, first_id)

    new = grown["embeddings"]["word_embeddings"]["embedding"]
    end = first_id + len(pieces)
    assert new.shape == (max(6, end), 2) == (config.vocab_size, 2)
    assert new[:first_id].tobytes() == table[:first_id].tobytes()
    assert new[end:].tobytes() == table[end:].tobytes()
    for row, ids in zip(new[first_id:], pieces, strict=False):
        np.testing.assert_allclose(row, np.float64(table)[ids].mean(axis=0), rtol=1e-5, atol=1e-5)
        if len(set(ids)) == 1:
            np.testing.assert_allclose(row, table[ids[0]], rtol=1e-6)


@pytest.mark.parametrize(
    ("groups", "layers", "sizes", "rows"),
    [
        (1, 3, (3, 1), [0]),  # one layer, computed 3 times
        (1, (1, 4), (2, 1), [0]),
        (3, (0, 1, 4, 5), (4, 2), [0, 2]),
        (3, 3, (3, 3), [0, 1, 2]),  # layers 0, 2, 5
        (6, (1, 2, 5), (3, 3), [1, 2, 5]),
        (3, (0, 1, 4), None, "model.keep_layers is .*; its 3 groups of 2 layers share their"),
    ],
)
def test_layers_that_share_parameters_are_kept_by_groups(groups, layers, sizes, rows):
    """ALBERT: 6 layers, and one row of the stacked parameters for each group of them."""
    config = dataclasses.replace(CONFIG, num_hidden_layers=6, num_hidden_groups=groups)
    params = {"encoder": {"layers": {"bias": np.arange(groups)}, "other": np.arange(9)}}
    if sizes is None:
        with pytest.raises(UserError, match=rows):
            keep_layers(params, config, layers)
        return
    fewer, smaller = keep_layers(params, config, layers)
    assert (smaller.num_hidden_layers, smaller.num_hidden_groups) == sizes
    assert fewer["encoder"]["layers"]["bias"].tolist() == rows
    assert len(fewer["encoder"]["other"]) == 9
