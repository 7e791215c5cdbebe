"""ELMo: AllenNLP's files, characters, and layers that read in two directions."""

import copy
import json

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax.data.padding import Sequences, pad
from bert_jax.errors import UserError
from bert_jax.models.decoding import DecoderCache
from bert_jax.models.encoder import Encoder
from bert_jax.models.execution import Execution
from bert_jax.models.packed_rows import EncoderInputs, PackedRows
from bert_jax.models.transformer_layer import RequestedOutputs
from bert_jax.planning.roofline import program_flops, real_flops
from bert_jax.tasks.base.model_init import ModelOptions, model_init
from bert_jax.tokenization import load_tokenizer
from tests.families import elmo_files

BATCHES = [["the cat sat", "a dog", "<S> naïve word"], ["ok", "one two three", "x " + 60 * "y"]]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return elmo_files.write(tmp_path_factory.mktemp("elmo"), prefix="elmo_tiny_")


@pytest.fixture(scope="module")
def model(directory):
    return bert_jax.load(directory)


@pytest.fixture(scope="module")
def encode(model):
    """The function of inputs and the cache → all hidden states, and the cache."""
    module = Encoder(model.config, add_pooling_layer=False)
    requested = RequestedOutputs(hidden_states=True)

    @jax.jit
    def apply(inputs, cache):
        arguments = (inputs, True, requested, None, cache)
        output = module.apply({"params": model.params}, *arguments, method="encode")
        return output.hidden_states, output.cache

    return apply


def inputs_of(model, texts, length=6):
    encodings = model.tokenizer.encode_batch(texts)
    return pad(dict(enumerate(encodings)), len(texts), length, model.tokenizer)


def test_all_layers_equal_a_direct_computation_from_batch_to_batch(model, encode):
    """The clips are reached; the states after a batch begin the next one."""
    tensors, states = elmo_files.weights(), [elmo_files.new_states() for _ in range(3)]
    cache = DecoderCache.empty(model.config, model.module.execution, 3, 0)
    for texts in BATCHES:
        hidden, cache = encode(EncoderInputs(**inputs_of(model, texts)), cache)
        for row, text in enumerate(texts):
            words = ["<S>", *text.split(), "</S>"]
            expected = elmo_files.layers(tensors, words, states[row])
            np.testing.assert_allclose(hidden[:, row, : len(words)], expected, atol=1e-5)
            assert not np.any(hidden[1:, row, len(words) :])
    clipped = [np.abs(cell) == elmo_files.CLIP for _, cell in states[0].values()]
    assert 0 < np.mean(clipped) < 1


def test_texts_of_a_packed_row_equal_texts_in_separate_rows(model):
    texts = ["one two", "x", "a b c"]
    batch = inputs_of(model, texts)
    module = Encoder(model.config, add_pooling_layer=False)
    apply = jax.jit(lambda inputs: module.apply({"params": model.params}, inputs))
    indices = np.full((1, 2, 8), -1, np.int32)
    indices[0, 0, :7] = [0, 1, 2, 3, 6, 7, 8]
    indices[0, 1, :5] = [12, 13, 14, 15, 16]
    back = np.full((3, 6), -1, np.int32)
    back.reshape(-1)[indices[indices >= 0]] = np.flatnonzero(indices.reshape(-1) >= 0)
    packed = PackedRows.from_batch({"pack_indices": indices, "unpack_indices": back})
    alone = apply(EncoderInputs(**batch)).last_hidden_state
    together = apply(EncoderInputs(**batch, packed_rows=packed)).last_hidden_state
    np.testing.assert_allclose(together, alone, atol=1e-6)


def test_vectors_of_texts(model, encode):
    """Those of all layers, and their mean."""
    hidden, _ = encode(EncoderInputs(**inputs_of(model, ["a dog"], 4)), None)
    (states,) = model.hidden_states(["a dog"], layers=(0, 1, 2))
    assert states.tokens == ["<S>", "a", "dog", "</S>"]
    assert states.offsets == [(0, 0), (0, 1), (2, 5), (0, 0)]
    np.testing.assert_allclose(states.states, hidden[:, 0], atol=1e-6)
    np.testing.assert_allclose(model.embed(["a dog"])[0], hidden[2, 0].mean(axis=0), atol=1e-6)


def test_words_are_spelled(model):
    """0 is no character; 1 to 256 are bytes."""
    arrays = model.tokenizer.token_arrays(["é!", "<S>", "</S>", 60 * "y"])
    assert arrays["characters"].dtype == np.int32
    rows = arrays["characters"].tolist()
    assert rows[0] == [259, 0xC3 + 1, 0xA9 + 1, 33 + 1, 260, *[261] * 45]
    assert rows[1] == [259, 257, 260, *[261] * 47]
    assert rows[2] == [259, 258, 260, *[261] * 47]
    assert rows[3] == [259, *[121 + 1] * 48, 260]
    assert [elmo_files.spelled(word) for word in ("é!", "<S>")] == [
        [character - 1 for character in row] for row in rows[:2]
    ]
    padded = inputs_of(model, ["a"], 4)
    assert padded["characters"].shape == (1, 4, 50)
    assert not padded["characters"][0, 3].any()


def test_rows_of_a_data_set_have_the_characters_of_their_words(model):
    texts = ["b a b", "", "a c"]
    encodings = model.tokenizer.encode_batch(texts)
    sequences = Sequences.from_encodings(encodings, model.tokenizer)
    batch = sequences.pad(np.array([2, -1, 0]), 6, model.tokenizer)
    expected = pad({0: encodings[2], 2: encodings[0]}, 3, 6, model.tokenizer)
    for name, array in expected.items():
        np.testing.assert_array_equal(batch[name], array)
    several = sequences.pad(np.array([[0, -1]]), 5, model.tokenizer)
    assert several["characters"].shape == (1, 2, 5, 50)


def test_a_pair_is_two_sentences(model):
    (encoding,) = model.tokenizer.encode_batch(["a b"], ["c"])
    assert encoding.tokens == ["<S>", "a", "b", "</S>", "<S>", "c", "</S>"]


def test_a_model_directory_has_the_same_model(model, tmp_path):
    model.save(tmp_path / "saved")
    again = bert_jax.load(tmp_path / "saved")
    assert again.report.complete
    assert again.config == model.config
    jax.tree.map(np.testing.assert_array_equal, again.params, model.params)
    again.save(tmp_path / "twice")
    for name in ("config.json", "model.safetensors", "tokenizer_config.json"):
        assert (tmp_path / "saved" / name).read_bytes() == (tmp_path / "twice" / name).read_bytes()
    assert json.loads((tmp_path / "saved" / "config.json").read_text())["cell_clip"] == 0.4
    assert load_tokenizer(tmp_path / "saved").fingerprint() == model.tokenizer.fingerprint()


def test_layers_without_clips_and_options_about_a_training(tmp_path):
    options = copy.deepcopy(elmo_files.OPTIONS)
    del options["lstm"]["cell_clip"], options["lstm"]["proj_clip"]
    options["char_cnn"]["n_characters"] = 261
    options |= {"bidirectional": True, "n_epochs": 10, "n_tokens_vocab": 793471}
    model = bert_jax.load(elmo_files.write(tmp_path / "files", options=options))
    model.save(tmp_path / "saved")
    assert bert_jax.load(tmp_path / "saved").config == model.config
    fields = json.loads((tmp_path / "saved" / "config.json").read_text())
    assert not {"cell_clip", "projection_clip"} & fields.keys()
    assert fields["training"] == {"n_epochs": 10, "n_tokens_vocab": 793471}


@pytest.mark.parametrize(
    ("section", "key", "value", "message"),
    [
        ("lstm", "projection_dim", None, "lstm.projection_dim is missing; give the whole file"),
        ("lstm", "n_layers", 0, "num_hidden_layers is 0; it must be at least 1"),
        ("lstm", "cell_clip", -1, "cell_clip is -1; it must be above 0"),
        ("lstm", "use_skip_connections", 1, "skip_connections is 1; it must be True or False"),
        ("lstm", "layer_norm", True, "lstm.layer_norm is True; the key is unknown"),
        ("char_cnn", "activation", "gelu", "char_cnn.activation is 'gelu'; known are relu, tanh"),
        ("char_cnn", "n_characters", 263, "char_cnn.n_characters is 263; only 261 and 262"),
        ("char_cnn", "max_characters_per_token", 60, "per_token is 60; only 50"),
        ("char_cnn", "filters", [[1, 0]], "char_filters is 0; it must be at least 1"),
        ("char_cnn", "embedding", 4, "char_cnn.embedding is 4; it must be an object"),
        ("", "bidirectional", False, "bidirectional is False; only True"),
        ("", "char_rnn", {}, "char_rnn is {}; the key is unknown"),
    ],
)
def test_options_that_are_refused(tmp_path, section, key, value, message):
    options = copy.deepcopy(elmo_files.OPTIONS)
    of_section = options[section] if section else options
    of_section[key] = value
    if value is None:
        del of_section[key]
    elmo_files.write(tmp_path / "files", options=options)
    with pytest.raises(UserError, match=r"files/options.json: .*") as error:
        bert_jax.load(tmp_path / "files")
    assert message in str(error.value)


def test_files_that_are_missing_or_wrong(directory, tmp_path):
    name = "RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell/B"
    lacking = elmo_files.write(tmp_path / "lacking", without=(name,))
    with pytest.raises(UserError, match=f"weights.hdf5 has no tensor {name}"):
        bert_jax.load(lacking)
    (lacking / "weights.hdf5").write_bytes(b"no HDF5")
    with pytest.raises(UserError, match=r"weights.hdf5 cannot be read: .*; copy or download"):
        bert_jax.load(lacking / "weights.hdf5")
    (lacking / "options.json").unlink()
    with pytest.raises(UserError, match="options.json must be there once, but there is none"):
        bert_jax.load(lacking)
    assert bert_jax.load(directory / "elmo_tiny_weights.hdf5").report.complete
    assert bert_jax.load(directory / "elmo_tiny_options.json").report.complete


def test_a_training_starts_from_converted_files(directory):
    message = "config.json does not exist; give a model directory, which bert-jax convert makes of"
    with pytest.raises(UserError, match=message):
        model_init(ModelOptions(), Execution(), init_from=str(directory))


def test_inputs_that_do_not_belong_to_the_model(model, tiny_config):
    ids = np.ones((1, 3), np.int32)
    with pytest.raises(ValueError, match="reads words by their characters"):
        model.module.apply({"params": model.params}, ids)
    characters = np.full((1, 3, 50), 262, np.int32)
    with pytest.raises(ValueError, match="characters are from 262 to 262"):
        model.module.apply({"params": model.params}, ids, characters=characters)
    with pytest.raises(ValueError, match="reads the ids of tokens; leave the characters out"):
        Encoder(tiny_config).init(jax.random.key(0), ids, characters=characters)
    with pytest.raises(UserError, match="projected_lstm layers have no attention weights"):
        model.attentions(["a dog"])
    for call in (model.tokenizer.with_words, model.tokenizer.decode):
        with pytest.raises(UserError, match="spells every word|no ids of single words"):
            call(["a"])


def test_the_plans_formula_counts_what_the_program_multiplies(model):
    module = Encoder(model.config, add_pooling_layer=False)
    inputs = EncoderInputs(**inputs_of(model, ["a b", "c"], 5))
    program = jax.make_jaxpr(lambda inputs: module.apply({"params": model.params}, inputs))(inputs)
    formula = real_flops(model.config, np.array([5, 5]), 0) / 3  # a forward pass
    assert program_flops(program.jaxpr) == formula


TAGGED = [
    {"tokens": ["the", "cat", "sat"], "ner_tags": ["O", "B-A", "O"]},
    {"tokens": ["a", "dog", "ran", "off"], "ner_tags": ["O", "B-A", "O", "O"]},
] * 8
FROZEN = {
    "freeze_encoder": True,
    "learning_rate": 0.2,
    "epochs": 10.0,
    "global_batch_size": 8,
    "classifier_dropout": 0.0,
    "length": 16,
}


@pytest.mark.slow
def test_a_tagger_learns_from_a_frozen_model(model, tmp_path):
    """The mix and the head are trained; the encoder stays bitwise as it was."""
    model.save(tmp_path / "elmo")
    keys = {"freeze_encoder": True, "learning_rate": 5e-2, "epochs": 4.0, "global_batch_size": 8}
    run = bert_jax.train(
        "tagging",
        tmp_path / "elmo",
        TAGGED,
        TAGGED[:2],
        workdir=tmp_path / "run",
        length=16,
        **keys,
    )
    trained = run.model
    jax.tree.map(np.testing.assert_array_equal, trained.params["bert"], model.params)
    mix = trained.params["layer_mix"]
    assert np.ptp(mix["weights"]) > 0.01
    assert abs(mix["scale"][0] - 1) > 0.01
    assert trained.description.class_name == "ElmoForTokenClassification"
    (tagging,) = trained.tag([["a", "cat", "sat"]])
    assert [word.text for word in tagging.words] == ["a", "cat", "sat"]
    assert [word.text for word in trained.tag(["a cat's paw."])[0].words] == ["a", "cat's", "paw."]


@pytest.mark.slow
def test_a_classifier_reads_the_mean_of_the_mix(model, tmp_path):
    model.save(tmp_path / "elmo")
    records = [{"text": text, "label": text[:3]} for text in ("cat sat", "dog ran off")] * 8
    start, workdir = tmp_path / "elmo", tmp_path / "run"
    run = bert_jax.train("classification", start, records, records[:2], workdir=workdir, **FROZEN)
    assert "layer_mix" in run.model.params
    assert run.result["accuracy"] == 1.0
