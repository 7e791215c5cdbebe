"""Examples in batches of like length, read a little ahead; predictions in the examples' order."""

import itertools
import threading
import time
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.errors import UserError
from bert_jax.sharding.mesh import one_device_mesh
from bert_jax.tasks.base.labelled_task import LabelledTask
from bert_jax.tasks.base.predictor import BatchOptions, Predictor
from bert_jax.tasks.base.splits import EvalSet
from bert_jax.tasks.base.streams import make_batches, micro_batches, predict_examples
from bert_jax.tasks.base.text_rows import TextEncoder, text_characters


class Lengths(Predictor):
    """Predicts the number of tokens of each row of an example, without a model."""

    def __init__(self, model, encode, characters=len, *, packs_rows=False, **sizes):
        self.packs_rows = packs_rows
        self.model, self.encode, self.characters = model, encode, characters
        self.options = BatchOptions(**{"batch_size": 2, "window": 2, **sizes})

    def encode(self, examples): ...

    def characters(self, example): ...

    def compute(self, batch):
        return batch["attention_mask"].sum(axis=1)

    def decode(self, example, encodings, outputs):
        return encodings[0].tokens[1], [int(length) for length in outputs]


@pytest.fixture(scope="module")
def fake_model(tokenizer, tiny_config):
    return SimpleNamespace(
        tokenizer=tokenizer, config=tiny_config, mesh=one_device_mesh(), params={}
    )


@pytest.fixture(scope="module")
def texts_of(fake_model):
    """A predictor of texts, one row each."""
    encode = TextEncoder(fake_model.tokenizer, fake_model.config, 32)
    return lambda **sizes: Lengths(fake_model, encode, text_characters, **sizes)


def numbers(batch):
    return [request.number for request, _ in batch.rows.values()]


#              [CLS] … [SEP]
TEXTS = [
    "the cat sat",  # 5
    "",  # 2
    ("a dog", "a bird sang ."),  # 9
    "the cat sat on the mat .",  # 9
    "sun",  # 3
]


def test_batches_by_hand(texts_of, tokenizer):
    first, second = make_batches(texts_of(batch_size=3), TEXTS, tokenizer, limit=32)
    assert numbers(first) == [2, 3, 0]
    assert numbers(second) == [4, 1]
    assert [request.example for request, _ in first.rows.values()] == [TEXTS[2], TEXTS[3], TEXTS[0]]
    assert [array.shape for array in first.arrays.values()] == [(3, 16)] * 3
    assert [array.dtype for array in first.arrays.values()] == [np.int32] * 3
    np.testing.assert_array_equal(
        first.arrays["input_ids"][:, :10],
        [
            [2, 7, 11, 3, 7, 12, 22, 5, 3, 0],
            [2, 6, 10, 20, 27, 6, 14, 5, 3, 0],
            [2, 6, 10, 20, 3, 0, 0, 0, 0, 0],
        ],
    )
    np.testing.assert_array_equal(
        first.arrays["token_type_ids"][:, :10],
        [
            [0, 0, 0, 0, 1, 1, 1, 1, 1, 0],
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ],
    )
    np.testing.assert_array_equal(
        second.arrays["attention_mask"][:, :5],
        [
            [1, 1, 1, 0, 0],
            [1, 1, 0, 0, 0],
        ],
    )
    (batch,) = make_batches(
        texts_of(batch_size=4), ["sun", "a cat", "sea"], tokenizer, limit=5, row_multiple=8
    )
    assert numbers(batch) == [1, 0, 2]
    assert batch.arrays["attention_mask"].sum(axis=1).tolist() == [4, 3, 3, 0, 0, 0, 0, 0]
    assert batch.arrays["input_ids"].shape == (8, 5)


def test_windows_are_sorted_apart_and_read_no_further_ahead(texts_of, tokenizer):
    read = []

    def texts(words):
        for length in itertools.count(1):
            read.append(length)
            yield "sun " * (length % 20) * words

    batches = make_batches(texts_of(window=3), texts(1), tokenizer, limit=32)
    assert [numbers(batch) for batch in itertools.islice(batches, 4)] == [
        [5, 4], [3, 2], [1, 0], [11, 10],
    ]  # fmt: skip
    assert len(read) == 12
    # A window of long texts is short.
    read.clear()
    next(make_batches(texts_of(window=64), texts(100_000), tokenizer, limit=32))
    assert len(read) == 2


def test_batches_have_few_shapes(texts_of, tokenizer):
    """A program is compiled for each: rows are filled up to a power of two, tokens to 16 or 32."""
    texts = ["sun " * (number % 31) for number in range(300)]  # 2 … 32 tokens
    batches = make_batches(texts_of(batch_size=11, window=64), texts, tokenizer, limit=32)
    shapes = [batch.arrays["input_ids"].shape for batch in batches]
    assert shapes == [(11, 32)] * 14 + [(11, 16)] * 13 + [(4, 16)]


words = st.lists(st.sampled_from(["sun", "boys", "walked", "?", "."]), max_size=40).map(" ".join)


@given(
    texts=st.lists(words | st.tuples(words, words), max_size=30),
    batch_size=st.integers(1, 7),
    window=st.integers(1, 3),
    row_multiple=st.integers(1, 4),
)
def test_every_text_is_in_one_batch(texts_of, tokenizer, texts, batch_size, window, row_multiple):
    predictor = texts_of(batch_size=batch_size, window=window)
    seen = []
    for batch in make_batches(predictor, texts, tokenizer, limit=32, row_multiple=row_multiple):
        ids, mask = batch.arrays["input_ids"], batch.arrays["attention_mask"]
        assert len(numbers(batch)) <= batch_size
        assert len(ids) % row_multiple == 0
        assert mask[len(numbers(batch)) :].sum() == 0
        for row, index in enumerate(numbers(batch)):
            text = texts[index]
            first, pair = ([text], None) if isinstance(text, str) else ([text[0]], [text[1]])
            (alone,) = tokenizer.encode_batch(first, pair, max_length=32)
            assert batch.encodings[row] == alone
            assert ids[row][mask[row] == 1].tolist() == alone.ids
        seen += numbers(batch)
    assert sorted(seen) == list(range(len(texts)))


def test_many_rows_are_packed_and_a_few_are_not(texts_of, tokenizer):
    few, many = ["sun " * 10] * 3, ["sun " * 10] * 4
    predictor = texts_of(batch_size=3, packs_rows=True)
    (padded,) = make_batches(predictor, few, tokenizer, limit=32)
    assert list(padded.arrays) == ["input_ids", "token_type_ids", "attention_mask"]
    (packed,) = make_batches(predictor, many, tokenizer, limit=32)
    # Two texts of 12 tokens in each row of 32.
    assert packed.arrays["pack_indices"].shape == (1, 2, 32)
    assert packed.arrays["attention_mask"].sum(axis=1).tolist() == [12] * 4 + [0] * 12
    assert numbers(packed) == [0, 1, 2, 3]


def test_packed_predictions_are_in_order(texts_of):
    texts = ["sun " * (number % 29) for number in range(50)]
    predictor = texts_of(batch_size=4, window=8, packs_rows=True)
    expected = [[number % 29 + 2] for number in range(50)]
    assert [lengths for _, lengths in predict_examples(predictor, texts)] == expected


def test_predictions_by_hand_in_order(texts_of):
    done = []
    predictions = predict_examples(texts_of(), TEXTS, advance=done.append)
    assert list(predictions) == [
        ("the", [5]), ("[SEP]", [2]), ("a", [9]), ("the", [9]), ("sun", [3]),
    ]  # fmt: skip
    assert done == [2, 2, 1]
    assert list(predict_examples(texts_of(), [])) == []


@pytest.mark.parametrize(
    ("parameters", "window", "ahead"),
    [(1, 64, 16), (1, 3, 3), (20_000_000, 64, 3), (110_000_000, 64, 1)],
)
def test_batches_of_a_small_model_are_begun_ahead(fake_model, texts_of, parameters, window, ahead):
    predictor, begun = texts_of(batch_size=2, window=window), []
    predictor.model = SimpleNamespace(
        **{**vars(fake_model), "params": {"kernel": np.broadcast_to(0.0, (parameters,))}}
    )
    predictor.compute = lambda batch: begun.append(None) or Lengths.compute(predictor, batch)
    next(predict_examples(predictor, ["sun"] * 100))
    assert len(begun) == 1 + ahead


def test_examples_of_several_rows(fake_model, tokenizer):
    predictor = Lengths(
        fake_model, lambda some: [tokenizer.encode_batch(example) for example in some]
    )
    examples = [("sun", "the sea"), ("a",), ("the cat sat .", "sun", "a dog")] * 3
    expected = [("sun", [3, 4]), ("a", [3]), ("the", [6, 3, 4])] * 3
    assert list(predict_examples(predictor, examples)) == expected


def test_a_stream_without_end(texts_of):
    read = []

    def texts():
        for number in itertools.count():
            read.append(number)
            yield "sun " * (number % 7)

    predictions = predict_examples(texts_of(), texts())
    first = list(itertools.islice(predictions, 100))
    assert [length for _, (length,) in first] == [number % 7 + 2 for number in range(100)]
    # The windows of the last prediction and of the batch that is begun ahead, 4 texts each.
    assert len(read) <= 100 + 8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0; it must be at least 1"),
        ({"max_length": 33}, "max_length is 33; this model takes 3 to 32 tokens"),
        ({"max_length": 2}, "max_length is 2; this model takes 3 to 32 tokens"),
    ],
)
def test_wrong_sizes(tiny_config, options, message):
    with pytest.raises(UserError, match=message):
        BatchOptions(**options).limit(tiny_config)


def test_micro_batches_have_all_items_in_order():
    assert [item for batch in micro_batches(range(10_000)) for item in batch] == [*range(10_000)]
    assert [list(batch) for batch in micro_batches([])] == [[]]

    def slow():
        for number in range(50):
            time.sleep(0.02)  # each item comes soon, and all of them do not
            yield number

    batches = [list(batch) for batch in micro_batches(slow())]
    assert [number for batch in batches for number in batch] == list(range(50))
    assert len(batches) > 3


def test_a_micro_batch_does_not_wait_for_the_next_item():
    answered = threading.Event()

    def source():
        yield "one"
        yield "two"
        assert answered.wait(60)
        yield "three"
        raise ValueError("the fourth")

    batches = micro_batches(source())
    items = []
    while len(items) < 2:  # in two, should the machine be slow
        items += list(next(batches))
    assert items == ["one", "two"]
    answered.set()
    rest = (item for batch in batches for item in batch)
    assert next(rest) == "three"
    with pytest.raises(ValueError, match="the fourth"):
        next(rest)


def test_too_little_memory_is_one_line_with_its_remedy(texts_of):
    predictor = texts_of(batch_size=2)
    predictor.compute = lambda batch: jnp.zeros(1 << 50, jnp.int8)
    with pytest.raises(UserError) as found:
        list(predict_examples(predictor, TEXTS))
    (line,) = str(found.value).splitlines()
    assert line.startswith("the memory of a device does not suffice for batches of 2 rows: RESOUR")
    assert line.endswith("; lower the batch size or the maximum length")
    # That of an evaluation has the names of a config.
    task = SimpleNamespace(predictor=lambda model: predictor)
    examples = [SimpleNamespace(item=text) for text in TEXTS]
    with pytest.raises(UserError, match="; lower the batch size or the maximum length$"):
        LabelledTask._predictions(task, predictor.model, EvalSet("validation", "", examples), None)
