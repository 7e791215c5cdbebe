"""Models that tag, here and in `transformers`: the same tags, and files that both read."""

import dataclasses
import json

import numpy as np
import pytest
import safetensors.numpy

import bert_jax
from bert_jax.models.heads.tagging import TaggingOptions

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.slow

LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
SENTENCES = [
    ["the", "players", "walked", "to", "the", "sea", "."],
    ["zzz", "cat"],
    ["one", "bird's", "song", "was", "long", "and", "low", "!"],
]


def saved(model, directory, **fields):
    """Writes a model with the labels, and other fields of its config."""
    config = dataclasses.replace(model.config, **fields)
    described = dataclasses.replace(model.description, config=config, labels=LABELS)
    dataclasses.replace(model, description=described).save(directory)
    return directory


def test_tags_and_scores_are_those_of_transformers(make_model, tmp_path):
    model = make_model("tagging", num_labels=5)
    directory = saved(model, tmp_path / "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    peer = transformers.AutoModelForTokenClassification.from_pretrained(directory).eval()
    assert peer.config.id2label == dict(enumerate(LABELS))
    ours = bert_jax.load(directory).tag(SENTENCES)
    for words, actual in zip(SENTENCES, ours, strict=True):
        inputs = tokenizer(words, is_split_into_words=True, return_tensors="pt")
        with torch.no_grad():
            probabilities = peer(**inputs).logits[0].softmax(-1).numpy()
        word_ids = inputs.word_ids()
        firsts = [word_ids.index(word) for word in range(len(words))]
        assert actual.tags == tuple(LABELS[label] for label in probabilities[firsts].argmax(-1))
        np.testing.assert_allclose(
            [word.score for word in actual.words], probabilities[firsts].max(-1), rtol=1e-4
        )


def test_a_chain_comes_back_to_the_bit_and_does_not_disturb_others(make_model, tmp_path):
    model = make_model("tagging", num_labels=5, use_crf=True)
    directory = saved(model, tmp_path / "model")
    assert json.loads((directory / "config.json").read_text())["use_crf"] is True
    tensors = safetensors.numpy.load_file(directory / "model.safetensors")
    for ours, name in (
        ("crf_transitions", "crf.transitions"),
        ("crf_start", "crf.start_transitions"),
        ("crf_end", "crf.end_transitions"),
    ):
        np.testing.assert_array_equal(tensors[name], model.params[ours])
    again = bert_jax.load(directory)
    assert again.config.head_options(TaggingOptions).use_crf
    assert again.report.complete
    peer, report = transformers.AutoModelForTokenClassification.from_pretrained(
        directory, output_loading_info=True
    )
    assert not report["missing_keys"]
    assert set(report["unexpected_keys"]) == {name for name in tensors if name.startswith("crf.")}
    assert peer.config.num_labels == 5
