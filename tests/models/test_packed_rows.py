"""Several texts in one row see nothing of each other, and have the results of unpacked rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.data.row_packing import RowPacker
from bert_jax.models.encoder import Encoder, RequestedOutputs
from bert_jax.models.execution import Execution
from bert_jax.models.head import find_head
from bert_jax.models.heads.pretraining import PreTrainingModel
from bert_jax.models.heads.text_vectors import TextPooling
from bert_jax.models.packed_rows import PackedRows, gather_or_zero
from bert_jax.models.sentence_pairs import SentencePairs
from tests.random_params import random_params, small_config

# Two rows of 20 tokens: texts of 7, 8 and 3 tokens and 2 of padding; of 15 and 5 tokens.
LENGTHS = ((7, 8, 3), (15, 5))
TOKENS, LABELS = 20, 4

CONFIG = small_config(vocab_size=60, max_position_embeddings=TOKENS)


def filled(rows, width: int) -> np.ndarray:
    return np.array([[*row, *[0] * (width - len(row))] for row in rows], np.int32)


@pytest.fixture(scope="module")
def inputs() -> dict[str, np.ndarray]:
    """Ids of even numbers in the first texts of the rows, of odd numbers in the others."""
    chance = np.random.default_rng(0)
    ids = [[2 * chance.integers(30, size=n) + (k > 0) for k, n in enumerate(r)] for r in LENGTHS]
    return {
        "input_ids": filled(map(np.concatenate, ids), TOKENS),
        "token_type_ids": chance.integers(2, size=(2, TOKENS)).astype(np.int32),
        "position_ids": filled([[i for n in row for i in range(n)] for row in LENGTHS], TOKENS),
        "segment_ids": filled([np.repeat(np.arange(1, len(r) + 1), r) for r in LENGTHS], TOKENS),
    }


NEXT_SENTENCE_POSITIONS = filled([[0, 7, 15], [0, 15]], LABELS)


@pytest.fixture(scope="module")
def params():
    """Random parameters, large enough for tokens to matter to each other."""
    return random_params(PreTrainingModel(CONFIG), seed=2, scale=0.3, all_differ=True)


@pytest.fixture(scope="module")
def outputs(params):
    """Hidden states of all layers and logits of both heads of packed rows; compiled once."""

    def make(dtype: str):
        execution = Execution(dtype=dtype)

        def apply(inputs):
            encoded = Encoder(CONFIG, execution).apply(
                {"params": params["bert"]},
                **inputs,
                encoder_outputs=RequestedOutputs(hidden_states=True),
            )
            logits = PreTrainingModel(CONFIG, execution).apply(
                {"params": params}, **inputs, next_sentence_positions=NEXT_SENTENCE_POSITIONS
            )
            return encoded.hidden_states, *logits

        return jax.jit(apply)

    compiled = {dtype: make(dtype) for dtype in ("float32", "bfloat16")}

    def run(inputs, dtype="float32"):
        mask = np.ones((2, TOKENS), np.int32)
        return [np.asarray(x) for x in compiled[dtype]({"attention_mask": mask} | inputs)]

    return run


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("segment", [0, 1, 2])
def test_a_change_of_one_text_changes_no_bit_of_another(outputs, inputs, segment, dtype):
    """Segment 0 is the padding."""
    changing = np.asarray(inputs["segment_ids"]) == segment
    changed = inputs | {
        "input_ids": np.where(changing, (inputs["input_ids"] * 7 + 11) % 60, inputs["input_ids"]),
        "token_type_ids": np.where(
            changing, 1 - inputs["token_type_ids"], inputs["token_type_ids"]
        ),
        "position_ids": np.where(
            changing, TOKENS - 1 - inputs["position_ids"], inputs["position_ids"]
        ),
    }
    hidden, words, pairs = outputs(inputs, dtype)
    new_hidden, new_words, new_pairs = outputs(changed, dtype)
    assert hidden[:, ~changing].tobytes() == new_hidden[:, ~changing].tobytes()
    assert words[~changing].tobytes() == new_words[~changing].tobytes()
    # And the test can fail: all changed tokens did change.
    assert (hidden[:, changing] != new_hidden[:, changing]).any(axis=-1).all()
    assert (words[changing] != new_words[changing]).any(axis=-1).all()
    for row, lengths in enumerate(LENGTHS):
        for number in range(1, len(lengths) + 1):
            pair, new_pair = pairs[row, number - 1], new_pairs[row, number - 1]
            assert (pair.tobytes() == new_pair.tobytes()) == (number != segment)


@pytest.mark.slow
def test_each_text_has_the_results_of_a_row_of_its_own(params, outputs, inputs):
    _, words, pairs = outputs(inputs)
    rows, starts = [0, 0, 0, 1, 1], [0, 7, 15, 0, 15]
    lengths = [n for row in LENGTHS for n in row]

    def alone(name: str) -> np.ndarray:
        spans = zip(rows, starts, lengths, strict=True)
        return filled([inputs[name][row, start : start + n] for row, start, n in spans], TOKENS)

    module = PreTrainingModel(CONFIG)
    expected = jax.jit(module.apply)(
        {"params": params},
        alone("input_ids"),
        alone("token_type_ids"),
        filled([[1] * n for n in lengths], TOKENS),
    )
    expected = jax.tree.map(np.asarray, expected)
    for number, (row, start, length) in enumerate(zip(rows, starts, lengths, strict=True)):
        np.testing.assert_allclose(
            words[row, start : start + length],
            expected.prediction_logits[number, :length],
            rtol=1e-4,
            atol=1e-4 * np.abs(words).max(),
        )
        np.testing.assert_allclose(
            pairs[row, number - 3 * row],
            expected.seq_relationship_logits[number],
            rtol=1e-4,
            atol=1e-4,
        )


@pytest.mark.slow
def test_no_gradient_passes_from_one_text_to_another(params, inputs):
    """The first texts have even ids and the others odd ones: the table shows them."""
    first = np.asarray(inputs["segment_ids"]) == 1
    weights = np.random.default_rng(1).normal(size=(2, TOKENS, CONFIG.hidden_size))

    @jax.jit
    def gradient(params):
        def loss(params):
            hidden = Encoder(CONFIG).apply({"params": params}, **inputs).last_hidden_state
            return (hidden * weights * first[..., None]).sum()

        return jax.grad(loss)(params)

    table = gradient(params["bert"])["embeddings"]["word_embeddings"]["embedding"]
    reached = np.flatnonzero(np.asarray(table).any(axis=1))
    assert set(reached.tolist()) == set(np.asarray(inputs["input_ids"])[first].tolist())
    assert not (reached % 2).any()


def test_an_attention_mask_hides_tokens_within_their_text(outputs, inputs):
    mask = np.ones((2, TOKENS), np.int32)
    mask[0, 8] = 0
    masked = outputs(inputs | {"attention_mask": mask})[1]
    words = outputs(inputs)[1]
    first, second = (np.asarray(inputs["segment_ids"])[0] == number for number in (1, 2))
    np.testing.assert_allclose(masked[0, first], words[0, first], rtol=1e-4, atol=1e-4)
    assert not np.isclose(masked[0, second], words[0, second]).all(axis=-1).any()


def test_the_gradient_of_a_gather_by_hand():
    # Texts of two tokens and of one, [2, 3]; packed in a row of four.
    pack = np.array([[[0, 1, 3, -1]]])
    unpack = np.array([[[0, 1, -1], [2, -1, -1]]])
    weights = np.float32([[[1.0], [2.0], [3.0], [4.0]]])

    def loss(hidden):
        return (gather_or_zero(hidden, pack, unpack) * weights).sum()

    gradient = np.asarray(jax.jit(jax.grad(loss))(np.ones((2, 3, 1), np.float32)))
    assert gradient[..., 0].tolist() == [[1, 2, 0], [3, 0, 0]]


def test_tokens_of_two_groups_are_numbered_through_the_batch():
    """So no two of them have the same dropout mask."""
    # Two groups of two texts of one token, each packed in one row.
    rows = PackedRows(jnp.array([[[0, 1]], [[0, 1]]]), jnp.array([[[0], [1]], [[0], [1]]]))
    assert rows.tokens().indices.tolist() == [[0, 1], [2, 3]]
    assert rows.tokens().mask.key_ids.tolist() == [[1, 2], [1, 2]]


# --- Rows that are packed for the encoder alone --------------------------------------------------

DROPOUT = small_config(
    vocab_size=40, num_labels=3, hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.3
)
ROW_LENGTHS = [7, 2, 12, 5, 3, 0, 4, 9]


def visible_part(leaf, mask):
    """0 for padding, and for rows of padding alone, which no task reads."""
    seen = mask if leaf.shape[:2] == mask.shape else mask.any(axis=-1)
    return seen.reshape(seen.shape + (1,) * (leaf.ndim - seen.ndim))


MODELS = {
    name: (find_head(name).make(DROPOUT), rows)
    for name, rows in (
        ("classification", (8,)),
        ("tagging", (8,)),
        ("question_answering", (8,)),
        ("multiple_choice", (4, 2)),
    )
} | {"similarity": (SentencePairs(DROPOUT, Execution(), TextPooling()), (4, 2))}


# In the fast tier a head on the vectors of the tokens; two texts of 8 tokens fit a row of 16
# positions, and none of 12.
EIGHTS = {"attention_mask": (np.arange(12) < np.full((8, 1), 8)).astype(np.int32)}
SLOW = [(name, [], (4, 12)) for name in MODELS]


@pytest.mark.parametrize(
    ("name", "samples", "packed_shape"),
    [
        ("tagging", [EIGHTS], (4, 16)),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW),
    ],
)
@pytest.mark.slow
def test_outputs_gradients_and_dropout_are_as_unpacked(name, samples, packed_shape):
    module, rows = MODELS[name]
    draw = np.random.default_rng(2)
    mask = (np.arange(12) < np.array(ROW_LENGTHS)[:, None]).astype(np.int32)
    batch = {
        "input_ids": draw.integers(1, 40, mask.shape) * mask,
        "token_type_ids": draw.integers(0, 2, mask.shape) * mask,
        "attention_mask": mask,
    }
    inputs = {key: array.reshape(*rows, 12) for key, array in batch.items()}
    packed = RowPacker(samples).pack(batch)
    assert packed["pack_indices"].shape == (1, *packed_shape)
    packed_rows = PackedRows.from_batch({key: jnp.asarray(array) for key, array in packed.items()})
    params = random_params(module, all_differ=True)

    def loss(params, packed_rows):
        output = module.apply(
            {"params": params}, **inputs, packed_rows=packed_rows, deterministic=False,
            rngs={"dropout": jax.random.key(3)},
        )  # fmt: skip
        mask = inputs["attention_mask"]
        leaves = [leaf * visible_part(leaf, mask) for leaf in jax.tree.leaves(output)]
        return sum((leaf**2).sum() for leaf in leaves), leaves

    evaluate = jax.jit(jax.value_and_grad(loss, has_aux=True))
    (_, expected), expected_gradients = evaluate(params, None)
    (_, outputs), gradients = evaluate(params, packed_rows)
    for value, truth in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(value, truth, atol=1e-5)
    for value, truth in zip(*map(jax.tree.leaves, (gradients, expected_gradients)), strict=True):
        np.testing.assert_allclose(value, truth, atol=2e-4, rtol=2e-4)
    assert float(sum(abs(leaf).sum() for leaf in expected)) > 1
