"""What the module takes, and next sentences."""

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax.cli import main
from bert_jax.errors import UserError
from bert_jax.models.transformer_layer import RequestedOutputs

PAIRS = [
    ("the cat sat .", "it was warm ."),
    ("a dog ran", "the song was long and low ."),
    ("a", "a"),
]


def test_inputs_are_padded_to_the_longest(model):
    inputs = model.inputs(["the cat sat", ("a dog", "it was warm and long")], max_length=8)
    assert {name: array.dtype for name, array in inputs.items()} == dict.fromkeys(
        ("input_ids", "token_type_ids", "attention_mask"), np.int32
    )
    # [CLS] 2, [SEP] 3, [PAD] 0; of the pair the longer text is cut to 3 of 5 words.
    assert inputs["input_ids"].tolist() == [
        [2, 6, 10, 20, 3, 0, 0, 0],
        [2, 7, 11, 3, 8, 9, 33, 3],
    ]
    assert inputs["token_type_ids"].tolist() == [[0] * 8, [0, 0, 0, 0, 1, 1, 1, 1]]
    assert inputs["attention_mask"].tolist() == [[1, 1, 1, 1, 1, 0, 0, 0], [1] * 8]
    for texts, message in (([], "there are no texts"), (["a", 3], "example 1: 3 is no text")):
        with pytest.raises(UserError, match=message):
            model.inputs(texts)


def test_the_module_takes_them_and_gives_hidden_states(model):
    inputs = model.inputs(["the cat sat", "it was warm and long"])
    apply = jax.jit(model.module.apply, static_argnames="encoder_outputs")
    requested = RequestedOutputs(hidden_states=True)
    outputs, encoded = apply({"params": model.params}, **inputs, encoder_outputs=requested)
    states = np.asarray(encoded.hidden_states)  # [L + 1, B, T, D]
    assert states.shape == (3, 2, 7, 16)
    expected = model.hidden_states(["the cat sat"], layers=(0, 1, 2))[0].states
    np.testing.assert_allclose(states[:, 0, :5], expected, atol=1e-5)
    alone = model.next_sentence([("the cat sat", "it was warm")])
    assert outputs.seq_relationship_logits.shape == (2, 2)
    assert alone.shape == (1,)


def test_the_probability_of_the_next_sentence(model, make_model, tmp_path, capsys):
    scores = model.next_sentence(PAIRS)
    assert (scores.shape, scores.dtype) == ((3,), np.float32)
    inputs = model.inputs(PAIRS)
    logits = model.module.apply({"params": model.params}, **inputs).seq_relationship_logits
    expected = np.exp(logits[:, 0]) / np.exp(logits).sum(axis=-1)
    np.testing.assert_allclose(scores, expected, atol=1e-6)

    make_model("next_sentence").save(tmp_path / "model")
    (tmp_path / "pairs.tsv").write_text("text\ttext_pair\nthe cat\tit was\n")
    files = ["--input", str(tmp_path / "pairs.tsv"), "--output", "-"]
    assert main(["predict", "--model", str(tmp_path / "model"), *files]) == 0
    alone = bert_jax.load(tmp_path / "model").next_sentence([("the cat", "it was")])
    line = capsys.readouterr().out
    assert line == f'{{"text": "the cat", "text_pair": "it was", "follows": {alone[0]!s}}}\n'


@pytest.mark.parametrize(
    ("head", "pairs", "message"),
    [
        ("pretraining", ["the cat"], "example 0: 'the cat' is one text; give a pair"),
        ("masked_lm", PAIRS, "does not compare a text with its next one; give the directory of a"),
    ],
)
def test_what_has_no_next_sentence(make_model, head, pairs, message):
    with pytest.raises(UserError, match=message):
        make_model(head).next_sentence(pairs)
