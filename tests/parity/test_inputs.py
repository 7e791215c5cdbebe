"""The inputs of a comparison."""

import dataclasses

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.models.config import EncoderConfig
from bert_jax.models.head import all_heads, find_head
from bert_jax.parity.compare import compute
from bert_jax.parity.inputs import FEATURES, make_inputs
from bert_jax.tokenization import BertSwitches, Template, WordPieceTokenizer
from bert_jax.tokenization.description import BRACKETED

TOKENIZER = WordPieceTokenizer.from_vocabulary([*BRACKETED, "a"], BertSwitches(True, None, True))
SPECIAL = TOKENIZER.special_ids
CONFIG = EncoderConfig(
    vocab_size=40,
    hidden_size=4,
    num_hidden_layers=1,
    num_attention_heads=1,
    intermediate_size=4,
    max_position_embeddings=32,
)


def inputs(head: str = "encoder", problem_type="single_label_classification", **changes):
    config = dataclasses.replace(CONFIG, **changes)
    return make_inputs(config, TOKENIZER, head, problem_type)


def test_there_are_batch_1_padding_two_segments_and_the_full_length():
    assert {batch.name: batch.text for batch in inputs(max_position_embeddings=512)} == {
        "short": "batch 1, 12 tokens",
        "padded": "batch 3, 24 tokens, padding (rows of 24, 17, 6), two segments",
        "full": "batch 1, 512 tokens, two segments",
    }


def test_rows_are_laid_out_as_bert_has_them():
    _, padded, _ = inputs()
    ids, types, mask = (padded.rows(name) for name in padded.features)
    #                                  [CLS] w  w [SEP] w [SEP] [PAD] …
    assert (ids[2] == np.array([2, *ids[2, 1:3], 3, ids[2, 4], 3, *[0] * 18])).all()
    assert types[2].tolist() == [0, 0, 0, 0, 1, 1] + [0] * 18
    assert mask[2].tolist() == [1] * 6 + [0] * 18
    assert mask.sum(1).tolist() == [24, 17, 6]
    assert (ids[mask == 1] != 0).all()


@pytest.mark.slow
def test_a_head_draws_further_arguments(make_model, monkeypatch):
    """As `decoder_input_ids`; here position 0 for all tokens."""
    model, head = make_model("masked_lm"), find_head("masked_lm")
    compared = dataclasses.replace(
        head.compared, features=lambda draw: {"position_ids": np.zeros_like(draw.ids)}
    )
    own = dataclasses.replace(head, comparison=compared)
    monkeypatch.setattr("bert_jax.parity.inputs.find_head", lambda name: own)
    short, *_ = make_inputs(model.config, model.tokenizer, "masked_lm", "regression")
    read = FEATURES[:3]  # a model without windows has no global tokens
    assert list(short.features) == [*read, "position_ids"]
    plain = dataclasses.replace(short, features={name: short.features[name] for name in read})
    logits = [compute(model, batch)["logits", "logits"] for batch in (short, plain)]
    assert abs(logits[0] - logits[1]).max() > 0.01


def test_special_tokens_follow_the_template():
    template = Template(single="cls A sep", pair="cls A sep sep B sep")
    tokenizer = WordPieceTokenizer.from_vocabulary(
        [*BRACKETED, "a"],
        BertSwitches(True, None, True),
        dataclasses.replace(WordPieceTokenizer.class_description, template=template),
    )
    config = dataclasses.replace(CONFIG, type_vocab_size=1)
    _, padded, _ = make_inputs(config, tokenizer, "encoder", "regression")
    ids = padded.features["input_ids"][2]
    assert (ids[:6] == [2, ids[1], 3, 3, ids[4], 3]).all()
    assert ids[[1, 4]].min() > SPECIAL.mask
    assert not padded.features["token_type_ids"].any()
    for batch in inputs(type_vocab_size=1):  # without a template for it, a single segment
        assert not batch.features["token_type_ids"].any()
        assert "two segments" not in batch.text


def test_the_same_seed_gives_the_same_inputs():
    first, repeated, different = (
        make_inputs(CONFIG, TOKENIZER, "masked_lm", "regression", seed=seed)[1]
        for seed in (5, 5, 6)
    )
    assert (first.features["input_ids"] == repeated.features["input_ids"]).all()
    assert (first.labels["labels"] == repeated.labels["labels"]).all()
    assert (first.features["input_ids"] != different.features["input_ids"]).any()


def test_masked_words_are_the_labels():
    for head in ("masked_lm", "pretraining"):
        for batch in inputs(head):
            ids, labels = batch.features["input_ids"], batch.labels["labels"]
            assert ((ids == SPECIAL.mask) == (labels != -100)).all()
            assert ((labels == -100) | (labels > SPECIAL.mask)).all()
            assert (labels != -100).any(axis=1).all()


def test_labels_of_tokens():
    for batch in inputs("tagging", num_labels=3):
        is_word = batch.features["input_ids"] > SPECIAL.mask
        assert ((batch.labels["labels"] != -100) == is_word).all()
        assert set(batch.labels["labels"][is_word]) <= {0, 1, 2}
    for batch in inputs("question_answering"):
        start, end = batch.labels["start_positions"], batch.labels["end_positions"]
        assert (start <= end).all()
        assert (end < batch.features["attention_mask"].sum(1)).all()


def test_choices_are_an_axis():
    _, padded, _ = inputs("multiple_choice")
    assert padded.features["input_ids"].shape == (3, 2, 24)
    assert padded.rows("input_ids").shape == (6, 24)
    assert padded.labels["labels"].shape == (3,)
    assert padded.text.startswith("batch 3, 24 tokens, 2 choices")


@pytest.mark.parametrize(
    ("problem_type", "num_labels", "shape", "dtype"),
    [
        ("single_label_classification", 3, (3,), np.int32),
        ("multi_label_classification", 3, (3, 3), np.float32),
        ("multi_label_classification", 1, (3, 1), np.float32),
        ("regression", 1, (3,), np.float32),
        ("regression", 2, (3, 2), np.float32),
    ],
)
def test_labels_of_a_classifier_fit_its_problem_type(problem_type, num_labels, shape, dtype):
    _, padded, _ = inputs("classification", problem_type, num_labels=num_labels)
    labels = padded.labels["labels"]
    assert (labels.shape, labels.dtype) == (shape, dtype)


def test_rows_of_a_batch_have_one_class_so_that_their_gradients_do_not_cancel():
    for head in ("classification", "next_sentence"):
        _, padded, _ = inputs(head)
        assert len(set(padded.labels["labels"].tolist())) == 1


def test_the_linear_form_has_nothing_at_padding():
    _, padded, _ = inputs()
    form, mask = padded.labels["last_hidden_state"], padded.features["attention_mask"]
    assert form.shape == (3, 24, 4)
    assert not form[mask == 0].any()
    assert form[mask == 1].all()


@hypothesis.given(
    head=st.sampled_from([name for name, head in all_heads().items() if head.comparison]),
    longest=st.integers(3, 40),
    vocab_size=st.integers(5, 12),
    segments=st.integers(1, 3),
)
def test_ids_types_and_lengths_are_within_the_tables(head, longest, vocab_size, segments):
    for batch in inputs(
        head,
        max_position_embeddings=longest,
        vocab_size=vocab_size,
        type_vocab_size=segments,
    ):
        assert batch.rows("input_ids").shape[1] <= longest
        assert 0 <= batch.rows("input_ids").min() <= batch.rows("input_ids").max() < vocab_size
        assert batch.rows("token_type_ids").max() < segments
        assert all(values.dtype == np.int32 for values in batch.features.values())
    assert batch.rows("input_ids").shape[1] == longest


def test_a_position_table_without_room_for_a_word_is_refused():
    with pytest.raises(UserError, match=r"the model takes 2 tokens, .* at least 3, a word"):
        inputs(max_position_embeddings=2)
