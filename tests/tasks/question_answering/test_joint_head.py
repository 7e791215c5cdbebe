"""The joint head in training, in files and in answers."""

import dataclasses
import json
import math

import jax
import numpy as np
import pytest
import safetensors.numpy

import bert_jax
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.checkpoints.parameters import to_tensors
from bert_jax.data.windows.passages import PassageWindows
from bert_jax.errors import NotFiniteError, UserError
from bert_jax.families.family import find_family
from bert_jax.models.execution import Execution
from bert_jax.models.heads.question_answering import SpanBeam
from bert_jax.tasks.question_answering.predict import AnswerOptions
from bert_jax.tasks.question_answering.spans import AnswerSpan, best_spans
from bert_jax.tokenization.wordpiece import BertSwitches, WordPieceTokenizer
from tests.corpora import PIECES
from tests.random_params import random_params

# Characters:  0   4   8   12 15  19 22
PASSAGE = "The cat sat on the mat."
# [CLS] it [SEP] the cat sat on the mat . [SEP]
#   0   1    2    3   4   5  6   7   8  9   10
NEVER = -np.inf


def beam(starts, start_scores, ends, end_scores, no_answer=0.0):
    return SpanBeam(
        np.array(starts, np.int32),
        np.array(start_scores, np.float32),
        np.array(ends, np.int32),
        np.array(end_scores, np.float32),
        np.float32(no_answer),
    )


def test_answers_from_beams_by_hand(tokenizer):
    (windows,) = PassageWindows(tokenizer)([("it", PASSAGE)])
    actual = best_spans(
        PASSAGE,
        windows,
        [
            beam(
                [4, 7, 3, 0],
                [-0.5, -1.0, -2.0, NEVER],
                [[5, 4], [8, 9], [3, 4], [0, 0]],
                [[-0.25, -0.75], [-0.25, NEVER], [-0.5, -0.25], [NEVER, NEVER]],
                no_answer=1.0,
            )
        ],
    )
    assert actual.best == (
        AnswerSpan("cat sat", 4, 11, -0.5, -0.25),
        AnswerSpan("cat", 4, 7, -0.5, -0.75),  # equal ones in the order of the passage
        AnswerSpan("the mat", 15, 22, -1.0, -0.25),
        AnswerSpan("The cat", 0, 7, -2.0, -0.25),
        AnswerSpan("The", 0, 3, -2.0, -0.5),
    )
    assert actual.null_odds == 1.0
    at_odds, below = (dataclasses.replace(actual, null_threshold=each) for each in (1.0, 0.9))
    assert (at_odds.answer(), below.answer()) == (actual.best[0], actual.null)
    # No answer has the probability of its logit, and the spans share the rest.
    no_answer = 1 / (1 + math.exp(-1.0))
    ranked = dict(below.n_best())
    assert ranked[actual.null] == pytest.approx(no_answer)
    total = sum(math.exp(span.score) for span in actual.best)
    for span in actual.best:
        share = math.exp(span.score) / total
        assert ranked[span] == pytest.approx((1 - no_answer) * share)
        assert dict(actual.n_best())[span] == pytest.approx(share)


def test_the_best_of_all_windows(tokenizer):
    (windows,) = PassageWindows(tokenizer, 8, 2)([("it", PASSAGE)])
    assert len(windows) == 3
    beams = [
        beam([3], [-1.0 - number], [[4]], [[-1.0]], no_answer=no_answer)
        for number, no_answer in enumerate((3.0, -2.0, 5.0))
    ]
    # The second window begins at "sat", but reads only what it has the most context for.
    first, second = windows[1].max_context
    beams[1] = beam([first], [-0.5], [[second]], [[-1.0]], no_answer=-2.0)
    beams[2] = beam([0], [NEVER], [[0]], [[NEVER]], no_answer=5.0)
    actual = best_spans(PASSAGE, windows, beams)
    assert [(span.text, span.score) for span in actual.best] == [
        (PASSAGE[windows[1].offsets[first][0] : windows[1].offsets[second][1]], -1.5),
        ("The cat", -2.0),
    ]
    assert actual.null_odds == -2.0
    nothing = best_spans(PASSAGE, windows, [beams[2]] * 3)
    assert (nothing.best, nothing.answer().text, nothing.null_odds) == ((), "", 5.0)


@pytest.mark.parametrize("field", ["start_scores", "end_scores", "no_answer_logits"])
def test_damaged_parameters_are_no_answer(tokenizer, field):
    (windows,) = PassageWindows(tokenizer)([("it", PASSAGE)])
    output = beam([4], [-0.5], [[5]], [[-0.25]])
    damaged = output._replace(**{field: np.full_like(getattr(output, field), np.nan)})
    with pytest.raises(NotFiniteError, match="the scores of a question are not finite"):
        best_spans(PASSAGE, windows, [damaged])


@pytest.fixture(scope="module")
def joint_model(make_model):
    return make_model("question_answering", qa_head="joint", max_position_embeddings=32)


def test_files(joint_model, tmp_path):
    joint_model.save(tmp_path / "model")
    fields = json.loads((tmp_path / "model" / "config.json").read_text())
    assert fields["qa_head"] == "joint"
    assert fields["architectures"] == ["BertForQuestionAnswering"]
    tensors = safetensors.numpy.load_file(tmp_path / "model" / "model.safetensors")
    width = joint_model.config.hidden_size
    assert {
        name: tensor.shape for name, tensor in tensors.items() if not name.startswith("bert.")
    } == {
        "qa_joint.start.weight": (1, width),
        "qa_joint.start.bias": (1,),
        "qa_joint.end_hidden.weight": (512, 2 * width),
        "qa_joint.end_hidden.bias": (512,),
        "qa_joint.end.weight": (1, 512),
        "qa_joint.end.bias": (1,),
        "qa_joint.no_answer_hidden.weight": (512, 2 * width),
        "qa_joint.no_answer_hidden.bias": (512,),
        "qa_joint.no_answer.weight": (1, 512),
        "qa_joint.no_answer.bias": (1,),
    }
    again = bert_jax.load(tmp_path / "model")
    assert again.config == joint_model.config
    assert again.report.complete
    jax.tree.map(np.testing.assert_array_equal, again.params, joint_model.params)


@pytest.mark.slow
def test_no_class_of_transformers_has_the_head(joint_model, tmp_path):
    pytest.importorskip("transformers")
    from bert_jax.parity.compare import compare

    joint_model.save(tmp_path / "model")
    with pytest.raises(UserError, match="qa_head 'joint', which the BertForQuestionAnswering of"):
        compare(tmp_path / "model")


def check_answers(model):
    """Against a plain call of the module, the ends of each start one by one."""
    question, length, tokenizer = "it", 4, model.tokenizer
    options = AnswerOptions(answer_length=length)
    actual = model.answer(question, PASSAGE, top_k=3, null_threshold=math.inf, options=options)
    (window,) = PassageWindows(tokenizer)([(question, PASSAGE)])[0]
    ids, types = (np.array([part], np.int32) for part in (window.ids, window.type_ids))
    hidden = jax.jit(model.module.apply)({"params": model.params}, ids, types)[0]
    hidden, head = jax.tree.map(
        lambda leaf: np.asarray(leaf, np.float64), (hidden, model.params["qa_joint"])
    )

    def dense(name, x):
        return x @ head[name]["kernel"] + head[name]["bias"]

    def gelu(x):
        return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2

    def log_softmax(scores):
        return scores - np.log(np.exp(scores).sum())

    tokens = [0, *range(*window.positions)]
    starts = log_softmax(dense("start", hidden[tokens])[:, 0])
    spans = []
    for start, start_score in zip(tokens[1:], starts[1:], strict=True):
        pairs = np.concatenate([np.tile(hidden[start], (len(tokens), 1)), hidden[tokens]], axis=1)
        ends = log_softmax(dense("end", gelu(dense("end_hidden", pairs)))[:, 0])
        for end, end_score in zip(tokens[1:], ends[1:], strict=True):
            if start <= end < start + length:
                text = PASSAGE[window.offsets[start][0] : window.offsets[end][1]]
                spans.append((start_score + end_score, text))
    spans = sorted(spans, reverse=True)[:20]
    features = np.concatenate([hidden[0], np.exp(starts) @ hidden[tokens]])
    no_answer = 1 / (1 + np.exp(-dense("no_answer", gelu(dense("no_answer_hidden", features)))[0]))
    total = sum(math.exp(score) for score, _ in spans)
    # "" is among the answers, wherever its probability places it.
    expected = sorted(
        [(math.exp(score) / total * (1 - no_answer), text) for score, text in spans]
        + [(no_answer, "")],
        key=lambda item: (item[1] != spans[0][1], -item[0]),
    )
    assert [answer.text for answer in actual] == [text for _, text in expected[:3]]
    np.testing.assert_allclose(
        [answer.score for answer in actual], [share for share, _ in expected[:3]], rtol=1e-4
    )
    assert actual[0].no_answer_score == pytest.approx(no_answer, rel=1e-4)


@pytest.mark.slow
def test_an_answer_is_the_best_of_the_beam(joint_model):
    check_answers(joint_model)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["albert", "distilbert", "electra", "mobilebert", "roberta"])
def test_every_family_has_the_head(joint_model, name):
    """Also those with one token type."""
    family = find_family(name)
    tokenizer = WordPieceTokenizer.from_vocabulary(PIECES, BertSwitches(True, None, True))
    if not family.token_types:
        tokenizer = tokenizer.without_token_types()
    config = family.new_config(
        "tiny", vocab_size=len(PIECES), max_position_embeddings=40, qa_head="joint"
    )
    description = ModelDescription(config, "question_answering", family=family)
    module = description.make_module(Execution())
    params = jax.device_put(random_params(module, scale=0.05))
    check_answers(
        dataclasses.replace(
            joint_model, module=module, params=params, tokenizer=tokenizer, description=description
        )
    )
    names = to_tensors(params, family.huggingface, module)
    assert sum(name.startswith("qa_joint.") for name in names) == 10
