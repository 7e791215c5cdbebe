"""The reader beside transformers' DPRReader and a loss in PyTorch, with random weights."""

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax.data.examples import Candidates
from bert_jax.inference.engine import predict_examples
from bert_jax.models.heads.reader import ReaderOutput
from bert_jax.tasks.base.predictor import BatchOptions
from bert_jax.tasks.reader.predict import PassageRows, ReaderPredictor

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

PASSAGES = [
    ("the sea", "the cat sat on the mat . it was warm and the dog sat down by a tree ."),
    ("", "one found a shell ."),
    ("a song", "the boys ran up to the sea and it was long"),
]
QUESTIONS = ["the cat was warm", "a song"]


@pytest.fixture(scope="module")
def published(tmp_path_factory, tokenizer):
    """The directory of a random DPRReader."""
    directory = tmp_path_factory.mktemp("reader")
    torch.manual_seed(0)
    config = transformers.DPRConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=48,
        initializer_range=0.5,
    )
    transformers.DPRReader(config).save_pretrained(directory)
    tokenizer.save(directory)
    return directory


@pytest.mark.parametrize("question", QUESTIONS)
def test_rows_relevance_and_spans(published, tokenizer, question):
    peer_tokenizer = transformers.DPRReaderTokenizerFast.from_pretrained(published)
    titles, texts = map(list, zip(*PASSAGES, strict=True))
    batch = peer_tokenizer(
        [question] * 3,
        titles,
        texts,
        padding=True,
        truncation=True,
        max_length=24,
        return_tensors="pt",
    )
    (encoded,) = PassageRows(tokenizer, 24)([Candidates(question, tuple(PASSAGES))])
    for row, ids, mask in zip(
        encoded.rows, batch["input_ids"], batch["attention_mask"], strict=True
    ):
        assert row.ids == ids[mask > 0].tolist()
    with torch.no_grad():
        output = transformers.DPRReader.from_pretrained(published)(**batch)
    best, *_ = peer_tokenizer.decode_best_spans(
        batch, output, num_spans=1, max_answer_length=10, num_spans_per_passage=1
    )
    predictor = ReaderPredictor(bert_jax.load(published), BatchOptions(max_length=24))
    (answer,) = predict_examples(predictor, [Candidates(question, tuple(PASSAGES))])
    assert answer.passage == best.doc_id
    assert answer.relevance == pytest.approx(float(best.relevance_score), abs=1e-5)
    assert answer.score == pytest.approx(float(best.span_score), abs=1e-5)
    assert answer.span.text.replace(" ", "") == best.text.replace(" ", "")


def test_the_loss_and_its_gradients(experiment, write_rows):
    """The formula of DPR's training, over the passages [N, M] of each question."""
    row = {"question": "it", "answers": ["sat"], "passages": ["it sat"]}
    file = write_rows("train.jsonl", [row])
    keys = {"data__train": file, "data__validation": file, "model__family": "dpr"}
    task = experiment("reader", **keys).task
    draw, (questions, passages, length) = np.random.default_rng(0), (3, 4, 7)
    logits = draw.normal(size=(2, questions, passages, length)).astype(np.float32)
    relevance = draw.normal(size=(questions, passages)).astype(np.float32)
    spans = np.full((questions, 10, 2), -1, np.int32)
    spans[0, :3] = [[0, 2], [3, 3], [5, 6]]
    spans[1, :1] = [[4, 4]]
    spans[2] = draw.integers(0, length, (10, 2))

    inputs = [torch.tensor(array, requires_grad=True) for array in (*logits, relevance)]
    start, end, ranking = inputs
    cross_entropy = torch.nn.functional.cross_entropy
    losses = torch.zeros(questions, passages, 10)
    places = torch.tensor(spans)
    for question in range(questions):
        for slot in range(10):
            first, last = places[question, slot].long()
            if first >= 0:
                losses[question, 0, slot] = cross_entropy(
                    start[question, 0], first
                ) + cross_entropy(end[question, 0], last)
    of_slots = losses.max(dim=1)[0]
    likelihood = torch.exp(-of_slots - 1e10 * (of_slots == 0)).sum(dim=1)
    span_loss = -torch.log(likelihood).sum()
    relevance_loss = cross_entropy(
        ranking, torch.zeros(questions, dtype=torch.long), reduction="sum"
    )
    (span_loss + relevance_loss).backward()

    batch = {
        "attention_mask": np.ones((questions, passages, length), np.int32),
        "labels": spans,
        "weights": np.ones(questions, np.float32),
    }

    def total(outputs):
        sums = task.loss({}, outputs, batch)
        return sums["span"]["loss"] + sums["relevance"]["loss"], sums

    outputs = ReaderOutput(*logits, relevance)
    (_, sums), gradients = jax.value_and_grad(total, has_aux=True)(outputs)
    assert float(sums["span"]["loss"]) == pytest.approx(span_loss.item(), rel=1e-5)
    assert float(sums["relevance"]["loss"]) == pytest.approx(relevance_loss.item(), rel=1e-5)
    for array, reference in zip(gradients, inputs, strict=True):
        np.testing.assert_allclose(array, reference.grad, rtol=1e-5, atol=1e-6)
