"""Examples in batches of similar length; predictions or errors in order; bursts."""

import itertools
import threading
import time
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.data.examples import Example
from bert_jax.data.readers.tables import Record
from bert_jax.errors import NotFiniteError, UserError
from bert_jax.inference.engine import Engine, predict_examples
from bert_jax.inference.evaluation import evaluate
from bert_jax.inference.predict import predict, task_of
from bert_jax.inference.streams import bursts
from bert_jax.sharding.mesh import one_device_mesh
from bert_jax.tasks import classification, fill_mask, multiple_choice
from bert_jax.tasks.base.predictor import BatchOptions, EncodedExample, ExampleError, Predictor
from bert_jax.tasks.base.text_rows import TextEncoder
from bert_jax.tasks.classification.predict import LabelPredictor
from bert_jax.tasks.multiple_choice import choice_inputs


class Lengths(Predictor):
    """Predicts the number of tokens of each row of an example, without a model."""

    def __init__(self, model, encode, *, packs_rows=False, chunk_batches=2, **sizes):
        super().__init__(model, BatchOptions(**{"batch_size": 2, **sizes}))
        self.encode, self.packs_rows, self.chunk_batches = encode, packs_rows, chunk_batches

    def encode(self, examples): ...

    def compute(self, batch):
        return batch["attention_mask"].sum(axis=1)

    def decode(self, example, encoded, outputs):
        return encoded.rows[0].tokens[1], [int(length) for length in outputs]


def fake_model(tokenizer, config, mesh, parameters=1):
    params = {"kernel": np.broadcast_to(0.0, (parameters,))}
    description = SimpleNamespace(trained_length=None)
    return SimpleNamespace(
        tokenizer=tokenizer, config=config, description=description, mesh=mesh, params=params
    )


@pytest.fixture(scope="module")
def texts_of(tokenizer, tiny_config):
    """A predictor of texts, one row each."""
    encode = TextEncoder(tokenizer, tiny_config, 32)

    def make(mesh=None, parameters=1, **sizes):
        model = fake_model(tokenizer, tiny_config, mesh or one_device_mesh(), parameters)
        return Lengths(model, encode, **sizes)

    return make


def a_mesh(data):
    """The shape of a mesh, where nothing is computed."""
    return SimpleNamespace(shape={"data": data, "fsdp": 1}, size=data, devices=np.array([0]))


@pytest.fixture(scope="module")
def batches_of(texts_of):
    """The batches of some texts, as the indices of the texts and as arrays."""

    def make(texts, **options):
        predictor = texts_of(**options)
        return [
            ([example for example, _ in batch.rows.values()], batch.arrays)
            for batch in Engine(predictor).batches(predictor.encode(texts))
        ]

    return make


#              [CLS] … [SEP]
TEXTS = [
    "the cat sat",  # 5
    "",  # 2
    ("a dog", "a bird sang ."),  # 9
    "the cat sat on the mat .",  # 9
    "sun",  # 3
]


def test_batches_by_hand(batches_of):
    (first, arrays), (second, further) = batches_of(TEXTS, batch_size=3)
    assert (first, second) == ([2, 3, 0], [4, 1])
    assert [array.shape for array in arrays.values()] == [(3, 16)] * 3
    assert [array.dtype for array in arrays.values()] == [np.int32] * 3
    np.testing.assert_array_equal(
        arrays["input_ids"][:, :10],
        [
            [2, 7, 11, 3, 7, 12, 22, 5, 3, 0],
            [2, 6, 10, 20, 27, 6, 14, 5, 3, 0],
            [2, 6, 10, 20, 3, 0, 0, 0, 0, 0],
        ],
    )
    assert arrays["token_type_ids"][0, :10].tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 1, 0]
    assert further["attention_mask"].sum(axis=1).tolist() == [3, 2]
    [(chosen, arrays)] = batches_of(
        ["sun", "a cat", "sea"], batch_size=4, max_length=5, mesh=a_mesh(8)
    )
    assert chosen == [1, 0, 2]
    assert arrays["attention_mask"].sum(axis=1).tolist() == [4, 3, 3, 0, 0, 0, 0, 0]
    assert arrays["input_ids"].shape == (8, 5)


def test_a_stream_without_end_is_read_one_chunk_ahead(texts_of):
    read = []

    def texts(*words):
        for number in itertools.count():
            read.append(number)
            yield "sun " * words[number % len(words)]

    predictions = predict_examples(texts_of(chunk_batches=3), texts(0, 1, 2, 3, 4))
    first = list(itertools.islice(predictions, 12))
    assert [length for _, (length,) in first] == [number % 5 + 2 for number in range(12)]
    assert len(read) == 12 + 6
    # A chunk of long texts is short.
    read.clear()
    next(Engine(texts_of(chunk_batches=64, parameters=110_000_000)).run(texts(300_000)))
    assert len(read) == 2
    *_, last = Engine(texts_of(chunk_batches=3)).run(["sun"] * 7)
    assert (len(last.examples), last.is_full) == (1, False)


def test_batches_have_few_shapes(batches_of, texts_of):
    """A program is compiled for each: rows are filled up to a power of two, tokens to 16 or 32."""
    texts = ["sun " * (number % 31) for number in range(300)]  # 2 … 32 tokens
    shapes = [arrays["input_ids"].shape for _, arrays in batches_of(texts, batch_size=11)]
    assert shapes == [(11, 32)] * 14 + [(11, 16)] * 13 + [(4, 16)]
    known = Engine(texts_of(batch_size=11)).shapes()
    assert known == [(b, t) for t in (16, 32) for b in (1, 2, 4, 8, 11)]
    assert set(shapes) <= set(known)


def test_what_is_encoded_beforehand_has_only_the_shapes_of_a_warm_up(texts_of):
    """However many rows there are, none is packed: a server compiles nothing for a request."""
    predictor = texts_of(batch_size=3, packs_rows=True)
    engine, shapes = Engine(predictor), []
    compute = predictor.compute
    predictor.compute = lambda batch: shapes.append(batch["input_ids"].shape) or compute(batch)
    known = engine.shapes()
    assert known == [(b, t) for t in (16, 32) for b in (1, 2, 3)]
    for count in (1, 2, 3, 4, 7, 40):
        texts = ["sun " * (number * 7 % 31) for number in range(count)]
        predictions = engine.predict_encoded(texts, predictor.encode(texts))
        assert [length for _, (length,) in predictions] == [n * 7 % 31 + 2 for n in range(count)]
    assert set(shapes) <= set(known)
    assert "pack_indices" in next(engine.batches(predictor.encode(texts))).arrays  # elsewhere


words = st.lists(st.sampled_from(["sun", "boys", "walked", "?", "."]), max_size=40).map(" ".join)


@given(
    texts=st.lists(words | st.tuples(words, words), max_size=30),
    batch_size=st.integers(1, 7),
    data=st.sampled_from([1, 2, 4]),
)
def test_every_text_is_in_one_batch(batches_of, tokenizer, texts, batch_size, data):
    seen = []
    for chosen, arrays in batches_of(texts, batch_size=batch_size, mesh=a_mesh(data)):
        ids, mask = arrays["input_ids"], arrays["attention_mask"]
        assert len(chosen) <= batch_size
        assert len(ids) % data == 0
        assert mask[len(chosen) :].sum() == 0
        for row, index in enumerate(chosen):
            text = texts[index]
            first, pair = ([text], None) if isinstance(text, str) else ([text[0]], [text[1]])
            (alone,) = tokenizer.encode_batch(first, pair, max_length=32)
            assert ids[row][mask[row] == 1].tolist() == alone.ids
        seen += chosen
    assert sorted(seen) == list(range(len(texts)))


def test_many_rows_are_packed_and_a_few_are_not(batches_of):
    few, many = ["sun " * 10] * 3, ["sun " * 10] * 4
    [(_, padded)] = batches_of(few, batch_size=3, packs_rows=True)
    assert list(padded) == ["input_ids", "token_type_ids", "attention_mask"]
    [(chosen, packed)] = batches_of(many, batch_size=3, packs_rows=True)
    # Two texts of 12 tokens in each row of 32.
    assert packed["pack_indices"].shape == (1, 2, 32)
    assert packed["attention_mask"].sum(axis=1).tolist() == [12] * 4 + [0] * 12
    assert chosen == [0, 1, 2, 3]


def test_predictions_by_hand_in_order(texts_of):
    done = []
    predictions = predict_examples(texts_of(), TEXTS, advance=done.append)
    expected = [("the", [5]), ("[SEP]", [2]), ("a", [9]), ("the", [9]), ("sun", [3])]
    assert list(predictions) == expected
    assert done == [2, 2, 1]
    assert Engine(texts_of()).predict(TEXTS) == expected
    assert Engine(texts_of()).predict([]) == list(predict_examples(texts_of(), [])) == []
    texts = ["sun " * (number % 29) for number in range(50)]
    packed = Engine(texts_of(batch_size=4, chunk_batches=8, packs_rows=True)).predict(texts)
    assert [lengths for _, lengths in packed] == [[number % 29 + 2] for number in range(50)]


def test_an_error_is_that_of_its_example_alone(texts_of):
    engine = Engine(texts_of())
    bad = [7, None, ["a", "b"], ("a", "b", "c")]  # two chunks of four, one without any text
    results = engine.predict(["sun", 7, "a sea", *bad, "sun"])
    assert str(results[1]) == "7 is no text; give a string or a pair of strings"
    assert [isinstance(each, ExampleError) for each in results] == [0, 1, 0, 1, 1, 1, 1, 0]
    assert [results[index] for index in (0, 2, 7)] == [("sun", [3]), ("a", [4]), ("sun", [3])]
    assert [str(each)[:4] for each in engine.predict([None, 3, 3, 3, 3])] == ["None", *["3 is"] * 4]
    # A stream ends at the first, after the chunk before.
    stream, computed = predict_examples(engine.predictor, [*["sun"] * 5, 7, *["sun"] * 5]), []
    with pytest.raises(ExampleError, match=r"^example 5: 7 is no text") as caught:
        computed.extend(stream)
    assert (len(computed), caught.value.index) == (4, 5)


def test_an_error_while_decoding_is_that_of_its_example_alone(texts_of):
    """Of an output that is not finite, for one: the other examples of its batch are predicted."""

    def make(error):
        predictor = texts_of(batch_size=4)
        decode = predictor.decode

        def failing(example, encoded, outputs):
            if example == "boys":
                raise error
            return decode(example, encoded, outputs)

        predictor.decode = failing
        return predictor

    texts = ["sun", "boys", "a sea"]
    for error in (NotFiniteError("the scores are not finite"), UserError("no word fits")):
        first, failed, last = Engine(make(error)).predict([*texts])
        assert (first, last) == (("sun", [3]), ("a", [4]))
        assert (type(failed), str(failed)) == (ExampleError, str(error))
        encoded = make(error).encode(texts)
        assert list(map(str, Engine(make(error)).predict_encoded(texts, encoded))) == [
            "('sun', [3])", str(error), "('a', [4])"
        ]  # fmt: skip
    # A stream ends at it, after the chunk before, with its number or, of a number, its type.
    for error, expected in (
        (NotFiniteError("the scores are not finite"), "^the scores are not finite$"),
        (UserError("no word fits"), "^example 9: no word fits$"),
    ):
        stream, computed = predict_examples(make(error), ["sun"] * 9 + ["boys"]), []
        with pytest.raises(type(error), match=expected):
            computed.extend(stream)
        assert len(computed) == 8


@pytest.mark.parametrize(
    ("parameters", "chunk_batches", "ahead"),
    [(1, 64, 16), (1, 3, 3), (20_000_000, 64, 3), (110_000_000, 64, 1)],
)
def test_batches_of_a_small_model_are_begun_ahead(texts_of, parameters, chunk_batches, ahead):
    predictor = texts_of(batch_size=2, chunk_batches=chunk_batches, parameters=parameters)
    begun, done = [], []
    predictor.compute = lambda batch: begun.append(None) or Lengths.compute(predictor, batch)

    def advance(count):
        done.append(len(begun))

    next(predict_examples(predictor, ["sun"] * 100, advance=advance))
    assert done[0] == 1 + ahead


def test_examples_of_several_rows(tokenizer, tiny_config):
    predictor = Lengths(
        fake_model(tokenizer, tiny_config, one_device_mesh()),
        lambda some: [EncodedExample(tokenizer.encode_batch(example)) for example in some],
    )
    examples = [("sun", "the sea"), ("a",), ("the cat sat .", "sun", "a dog")] * 3
    expected = [("sun", [3, 4]), ("a", [3]), ("the", [6, 3, 4])] * 3
    assert Engine(predictor).predict(examples) == expected


def test_requests_to_a_server(make_model):
    """Records → examples → predictions or errors → records, as a server answers them."""
    model = make_model("classification")
    task, spec = task_of(model, None)
    options = spec.read_options(task, "-", {"batch_size": 4})
    engine = Engine(spec.predictor(model, options))
    requests = [{"id": 7, "text": "the sun"}, {"text": "a", "text_pair": "sea"}]
    parse = spec.reader.parser(options)
    examples = [parse(Record(request, "a request"), 0) for request in requests]
    first, bad, second = engine.predict([examples[0].input, None, examples[1].input])
    assert isinstance(bad, ExampleError)
    assert [
        list(spec.record(example, prediction))
        for example, prediction in zip(examples, (first, second), strict=True)
    ] == [
        ["id", "text", "label", "score", "probabilities"],
        ["text", "text_pair", "label", "score", "probabilities"],
    ]


def test_methods_files_and_evaluations_use_the_engine(make_model, tmp_path, monkeypatch):
    """There is one way from examples to predictions or errors."""
    used, run = [], Engine.run

    def recorded(engine, examples, **options):
        used.append(type(engine.predictor))
        return run(engine, examples, **options)

    monkeypatch.setattr(Engine, "run", recorded)
    model = make_model("classification")
    (expected,) = model.classify(["the sun"])
    (tmp_path / "in.txt").write_text("the sun\n")
    predict(model, None, tmp_path / "in.txt", tmp_path / "out.jsonl", {"progress": False})
    evaluator = SimpleNamespace(
        unlabelled=(),
        evaluate=lambda model, predict, with_test: predict(
            LabelPredictor(model, BatchOptions()), [Example("the sun")], "validation"
        ),
    )
    task = SimpleNamespace(evaluator=evaluator, model=lambda params, mesh: model)
    assert evaluate(task, model.params, model.mesh) == [expected]
    assert used == [LabelPredictor] * 3


@pytest.mark.parametrize(
    ("spec", "head", "examples"),
    [
        (classification.PREDICT, "classification", ["sun", "the sea " * 15]),
        (
            fill_mask.PREDICT,
            "masked_lm",
            ["[MASK] sun", "a [MASK] [MASK] [MASK]", "[MASK] " * 8],
        ),
        (
            multiple_choice.PREDICT,
            "multiple_choice",
            choice_inputs(["the cat", "the sea " * 9], [["sat", "ran"]] * 2),
        ),
    ],
)
@pytest.mark.slow
def test_short_lists_have_only_shapes_of_the_warm_up(make_model, spec, head, examples):
    predictor = spec.predictor(make_model(head), spec.options(batch_size=2))
    shapes = []
    compute = predictor.compute

    def recorded(batch):
        shapes.append({name: array.shape for name, array in batch.items()})
        return compute(batch)

    predictor.compute = recorded
    engine = Engine(predictor)
    for shape in engine.shapes():
        engine.compile(*shape)
    known = list(shapes)
    sizes = [(shape["input_ids"][0], shape["input_ids"][-1]) for shape in known]
    assert list(dict.fromkeys(sizes)) == engine.shapes()
    for example in examples:
        engine.predict([example])
    assert len(shapes) > len(known)
    assert all(shape in known for shape in shapes)


def test_too_little_memory_is_one_line_with_its_remedy(texts_of):
    predictor = texts_of(batch_size=2)
    predictor.compute = lambda batch: jnp.zeros(1 << 50, jnp.int8)
    with pytest.raises(UserError) as caught:
        Engine(predictor).predict(TEXTS)
    (line,) = str(caught.value).splitlines()
    assert line.startswith("the memory of a device does not suffice for batches of 2 rows: RESOUR")
    assert line.endswith("; lower batch_size or max_length")


def test_bursts_have_all_items_in_order():
    assert [item for batch in bursts(range(10_000)) for item in batch] == [*range(10_000)]
    assert [list(batch) for batch in bursts([])] == [[]]

    def slow():
        for number in range(50):
            time.sleep(0.02)  # each item comes soon, and all of them do not
            yield number

    batches = [list(batch) for batch in bursts(slow())]
    assert [number for batch in batches for number in batch] == list(range(50))
    assert len(batches) > 3


def test_a_burst_does_not_wait_for_the_next_item():
    answered = threading.Event()

    def source():
        yield "one"
        yield "two"
        assert answered.wait(60)
        yield "three"
        raise ValueError("the fourth")

    batches = bursts(source())
    items = []
    while len(items) < 2:  # in two, should the machine be slow
        items += list(next(batches))
    assert items == ["one", "two"]
    answered.set()
    rest = (item for batch in batches for item in batch)
    assert next(rest) == "three"
    with pytest.raises(ValueError, match="the fourth"):
        next(rest)
