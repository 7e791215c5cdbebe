"""A model that learned its words and positions, and then gets more of both."""

import dataclasses
import os
import subprocess
import sys

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

import bert_jax
from bert_jax.errors import UserError

TEXTS = ["the cat sat on the mat .", ("a bird sang", "it was [MASK] and warm ."), "", "x"]


@pytest.fixture
def model(model):
    """The model for this test alone: it knows which models were made of it."""
    return dataclasses.replace(model)


def leaf(model, ending: str) -> np.ndarray:
    """The only parameter with this ending of its name."""
    flat = flatten_dict(model.params, sep="/")
    (name,) = [name for name in flat if name.endswith(ending)]
    return np.asarray(flat[name])


def assert_same_bits(array, expected) -> None:
    assert array.shape == expected.shape
    assert array.tobytes() == expected.tobytes()


def test_new_words_have_ids_and_begin_as_their_pieces(model):
    # dog 11, ##s 37, sun 17; "moon" has no pieces: it is [UNK], 1.
    assert model.tokenizer.encode_sentences(["dogs moon suns"]) == [[11, 37, 1, 17, 37]]
    more = model.add_words(["Dogs", "cat", "moon", "dogs", "suns"])

    assert more.tokenizer.encode_sentences(["dogs moon suns"]) == [[40, 41, 42]]
    assert more.config.vocab_size == more.tokenizer.vocab_size == 43
    assert more.module.config == more.description.config == more.config
    for name in ("word_embeddings/embedding", "mlm_head/bias"):
        old, new = leaf(model, name), leaf(more, name)
        assert_same_bits(new[:40], old)
        np.testing.assert_allclose(new[40], (old[11] + old[37]) / 2, rtol=1e-6)
        assert_same_bits(new[41], old[1])
        np.testing.assert_allclose(new[42], (old[17] + old[37]) / 2, rtol=1e-6)


def test_a_marker_begins_as_its_pieces(model):
    (pieces,) = model.tokenizer.encode_sentences(["[dog]"])
    more = model.add_words(["[dog]"], whole=True)

    assert more.tokenizer.encode_sentences(["sun[dog]"]) == [[17, 40]]
    old, new = leaf(model, "mlm_head/bias"), leaf(more, "mlm_head/bias")
    assert_same_bits(new[:40], old)
    np.testing.assert_allclose(new[40], old[pieces].mean(), rtol=1e-6)


@pytest.mark.slow
def test_texts_without_the_words_get_the_same_bits_and_the_model_stays(model):
    config, vocab_size = model.config, model.tokenizer.vocab_size
    before = jax.tree.map(np.array, model.params)
    more = model.add_words(["dogs", "catapult", "moon"]).extend_positions(100)
    for old, new in zip(
        model.hidden_states(TEXTS, (0, 1, 2)), more.hidden_states(TEXTS, (0, 1, 2)), strict=True
    ):
        assert_same_bits(new.states, old.states)
    assert (model.config, model.tokenizer.vocab_size) == (config, vocab_size)
    jax.tree.map(np.testing.assert_array_equal, model.params, before)


@pytest.mark.slow
def test_an_unknown_word_keeps_its_vector_and_a_known_one_can_fill_a_mask(model):
    more = model.add_words(["moon", "dogs"])
    texts = ["the moon was low", "the dogs ran"]
    new, old = more.embed(texts), model.embed(texts)
    assert_same_bits(new[0], old[0])
    assert np.abs(new[1] - old[1]).max() > 1e-3
    predictions = {each.token: each for each in more.fill_mask("the [MASK] ran", top_k=42)}
    assert predictions["dogs"].token_id == 41
    assert predictions["dogs"].text == "the dogs ran"
    # Its score before the softmax is the mean of the scores of "dog" and "##s".
    middle = np.sqrt(predictions["dog"].score * predictions["##s"].score)
    assert predictions["dogs"].score == pytest.approx(middle, rel=1e-4)


def test_more_positions_take_longer_texts(model):
    long = "the cat sat " * 20  # 62 tokens with [CLS] and [SEP]
    longer = model.extend_positions(70)

    assert longer.config.max_position_embeddings == 70
    assert longer.module.config == longer.description.config == longer.config
    old, new = (leaf(m, "position_embeddings/embedding") for m in (model, longer))
    assert_same_bits(new[:32], old)
    assert_same_bits(new[32:64], old)
    assert_same_bits(new[64:], old[:6])
    (before,), (after,) = model.hidden_states([long]), longer.hidden_states([long])
    assert (before.states.shape, after.states.shape) == ((1, 32, 16), (1, 62, 16))
    with pytest.raises(UserError, match="positions is 31, but the model has 32"):
        model.extend_positions(31)


@pytest.mark.parametrize("head", ["encoder", "pretraining"])
def test_a_grown_model_is_saved_and_loaded_whole(make_model, tmp_path, head):
    grown = make_model(head, tie_word_embeddings=False).add_words(["dogs", "moon"])
    grown = grown.extend_positions(48)

    grown.save(tmp_path / "model")
    loaded = bert_jax.load(tmp_path / "model")

    assert loaded.report.complete
    assert loaded.config == grown.config
    assert type(loaded.module) is type(grown.module)
    assert loaded.tokenizer.fingerprint() == grown.tokenizer.fingerprint()
    jax.tree.map(np.testing.assert_array_equal, loaded.params, grown.params)
    assert loaded.tokenizer.encode_sentences(["dogs moon"]) == [[40, 41]]


def test_a_padded_vocabulary_is_filled_first(make_model, tmp_path):
    model = make_model("masked_lm", vocab_size=42)
    assert model.tokenizer.vocab_size == 40
    filled, grown = model.add_words(["dogs"]), model.add_words(["dogs", "suns", "moon"])

    assert (filled.config.vocab_size, grown.config.vocab_size) == (42, 43)
    old, new = (leaf(m, "word_embeddings/embedding") for m in (model, filled))
    np.testing.assert_allclose(new[40], (old[11] + old[37]) / 2, rtol=1e-6)
    assert_same_bits(new[[*range(40), 41]], old[[*range(40), 41]])
    filled.save(tmp_path / "model")
    loaded = bert_jax.load(tmp_path / "model")
    assert (loaded.config.vocab_size, loaded.tokenizer.vocab_size) == (42, 41)
    # A row without a piece is never proposed, and more words can follow.
    assert len(loaded.fill_mask("the [MASK]", top_k=100)) == 41
    assert loaded.add_words(["suns", "moon"]).config == grown.config


def test_refused_words(model):
    with pytest.raises(UserError, match="'New York' is always split into 'new', 'york'"):
        model.add_words(["dogs", "New York"])


PROGRAM = """
import sys
import jax, numpy
import bert_jax
from bert_jax.errors import UserError
from bert_jax.sharding.mesh import MeshShape, make_mesh

directory, output = sys.argv[1:]
alone = bert_jax.load(directory).add_words(["dogs", "moon"]).extend_positions(64)
model = bert_jax.load(directory, mesh=make_mesh(MeshShape(2, 2, 2)))
grown = model.add_words(["dogs", "moon"]).extend_positions(64)
for old, new, single in zip(*map(jax.tree.leaves, (model.params, grown.params, alone.params))):
    assert new.sharding == old.sharding and len(new.sharding.device_set) == 8, new.sharding
    numpy.testing.assert_array_equal(new, single)
texts = ["the dogs ran", "the moon was low " * 10, "a cat"]
numpy.testing.assert_allclose(grown.embed(texts), alone.embed(texts), atol=1e-6, rtol=0)
grown.save(output)
try:
    model.add_words(["dogs"])
except UserError as error:
    print(error)
"""


@pytest.mark.slow
def test_a_model_on_eight_devices_grows_there(model, tmp_path):
    model.save(tmp_path / "model")

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "model"), str(tmp_path / "grown")],
        env=os.environ | {"JAX_NUM_CPU_DEVICES": "8"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "an axis of 41, which tensor=2 does not divide" in done.stdout
    assert bert_jax.load(tmp_path / "grown").config.vocab_size == 42


@pytest.mark.slow
@pytest.mark.parametrize("tied", [True, False])
def test_transformers_takes_the_grown_model(make_model, tmp_path, tied):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model = make_model("pretraining", tie_word_embeddings=tied)
    grown = model.add_words(["dogs", "moon", "suns"]).extend_positions(640)
    grown.save(tmp_path)

    reference, information = transformers.BertForPreTraining.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert not any(
        information[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")
    )
    assert reference.config.vocab_size == 43
    assert reference.config.max_position_embeddings == 640
    tokens = transformers.AutoTokenizer.from_pretrained(tmp_path)(
        ["the dogs and the suns " * 120, "moon"], padding=True, return_tensors="pt"
    )
    assert tokens["input_ids"].shape == (2, 602)
    assert tokens["input_ids"][:, 1:6].tolist() == [[6, 40, 30, 6, 42], [41, 3, 0, 0, 0]]
    with torch.no_grad():
        expected = reference.eval()(**tokens)
    outputs = grown.module.apply(
        {"params": grown.params},
        *(
            tokens[name].numpy().astype(np.int32)
            for name in ("input_ids", "token_type_ids", "attention_mask")
        ),
    )
    real = tokens["attention_mask"].numpy().astype(bool)
    np.testing.assert_allclose(
        np.asarray(outputs.prediction_logits)[real],
        expected.prediction_logits.numpy()[real],
        atol=1e-4,
    )
    np.testing.assert_allclose(
        outputs.seq_relationship_logits, expected.seq_relationship_logits.numpy(), atol=1e-4
    )


def test_saving_the_unchanged_model_says_so(make_model, tmp_path, capsys):
    model = dataclasses.replace(make_model("encoder"))
    changed = model.add_words(["moon"])
    changed.save(tmp_path / "changed")
    assert capsys.readouterr().err == ""
    model.save(tmp_path / "same")
    assert capsys.readouterr().err == (
        f"{tmp_path}/same: the model without what add_words changes: it returns another model, "
        "model = model.add_words(…), and this one stays as it was\n"
    )
    assert bert_jax.load(tmp_path / "same").config == model.config
    assert changed.config.vocab_size == model.config.vocab_size + 1
