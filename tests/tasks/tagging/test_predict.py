"""Tags and entities by models whose scores are known, and against a plain call of the module."""

import dataclasses
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bert_jax
from bert_jax.data.examples import Example, Sentence
from bert_jax.errors import OptionError, UserError
from bert_jax.files.manifest import MANIFEST
from bert_jax.inference.engine import predict_examples
from bert_jax.inference.predict import predict
from bert_jax.models.head import with_fields
from bert_jax.tasks.base.predictor import ExampleError
from bert_jax.tasks.tagging.predict import PREDICT, TaggingPredictOptions, TagPredictor
from bert_jax.tokenization import Template

IOB2 = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
# Which word means which label; all others mean the first.
MEANINGS = {"boy": 1, "bird": 2, "sea": 3, "tree": 4}
# The probability of the label that a word means, see `knowing`.
SURE = 1 / (1 + 4 * math.exp(-4 / math.sqrt(15) * 4))


@pytest.fixture(scope="module")
def knowing(label_by_piece, tokenizer):
    """Makes models that know the label of each word by its first piece, and nothing else."""
    return lambda: label_by_piece(tokenizer, IOB2, MEANINGS)


def taggings(model, sentences, **options):
    return predict_examples(TagPredictor(model, TaggingPredictOptions(**options)), sentences)


def tag(model, sentence, **options):
    (actual,) = model.tag([sentence], **options)
    return actual


def entities_of(actual):
    return [(span.type, span.text, span.start, span.end, span.words) for span in actual.entities]


def test_a_text_by_hand(knowing):
    text = "A boy-bird sang:  «Sea»"
    actual = tag(knowing(), text)
    assert [word.text for word in actual.words] == [
        *("A", "boy", "-", "bird", "sang", ":", "«", "Sea", "»")
    ]
    assert actual.tags == ("O", "B-PER", "O", "I-PER", "O", "O", "O", "B-LOC", "O")
    # A new entity after O, as conlleval reads it.
    assert entities_of(actual) == [
        ("PER", "boy", 2, 5, (1, 2)),
        ("PER", "bird", 6, 10, (3, 4)),
        ("LOC", "Sea", 19, 22, (7, 8)),
    ]
    assert all(text[entity.start : entity.end] == entity.text for entity in actual.entities)
    np.testing.assert_allclose([word.score for word in actual.words], SURE, rtol=1e-5)


def test_split_words_by_hand(knowing):
    actual = tag(knowing(), ["the", "boy", "bird", "birds", "sea", "boy"])
    assert actual.tags == ("O", "B-PER", "I-PER", "I-PER", "B-LOC", "B-PER")
    assert entities_of(actual) == [
        ("PER", "boy bird birds", 4, 18, (1, 4)),
        ("LOC", "sea", 19, 22, (4, 5)),
        ("PER", "boy", 23, 26, (5, 6)),
    ]
    assert actual.entities[0].score == pytest.approx(SURE)


def test_a_word_of_which_nothing_is_left(knowing):
    actual = tag(knowing(), ["boy", "\u200b", "", "bird"])
    assert actual.tags == ("B-PER", "O", "O", "I-PER")
    assert [word.score > 0 for word in actual.words] == [True, False, False, True]
    assert [(word.start, word.end) for word in actual.words] == [(0, 3), (4, 5), (6, 6), (7, 11)]


def test_sentences_without_words(knowing):
    assert [actual.words for actual in taggings(knowing(), ["", [], " \n", ["\u200b"]])] == [
        (),
        (),
        (),
        tag(knowing(), ["\u200b"]).words,
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("max_length", "use_crf"), [(None, False), (7, False), (3, True)])
def test_no_word_of_a_long_sentence_is_lost(knowing, with_chain, use_crf, max_length):
    words = ["players", "boy", "bird", "walked", "sea"] * 100
    model = with_chain(knowing()) if use_crf else knowing()
    actual = tag(model, words, max_length=max_length)
    assert len(actual.words) == 500
    assert actual.tags == ("O", "B-PER", "I-PER", "O", "B-LOC") * 100
    assert len(actual.entities) == 200


@pytest.fixture(scope="module")
def with_chain():
    """Gives a model a chain, by default one whose scores are all 0."""

    def make(model, transitions=0.0, start=0.0, end=0.0):
        count = model.config.num_labels
        params = {
            **model.params,
            "crf_transitions": np.full((count, count), transitions, np.float32),
            "crf_start": np.full(count, start, np.float32),
            "crf_end": np.full(count, end, np.float32),
        }
        config = with_fields(model.config, {"use_crf": True})
        description = dataclasses.replace(model.description, config=config)
        module = description.make_module(model.module.execution)
        return dataclasses.replace(model, params=params, description=description, module=module)

    return make


def test_a_chain_allows_no_invalid_tag(knowing, with_chain):
    words = ["bird", "boy", "bird", "the"]
    assert tag(knowing(), words).tags == ("I-PER", "B-PER", "I-PER", "O")
    chained = tag(with_chain(knowing()), words)
    assert not chained.tags[0].startswith("I-")
    assert chained.tags[1:] == ("B-PER", "I-PER", "O")
    # All other tags of the first word are equally probable: O and two that begin an entity.
    np.testing.assert_allclose(chained.words[0].score, 1 / 3, rtol=0.05)
    np.testing.assert_allclose(chained.words[3].score, SURE, rtol=0.05)


def test_a_chain_reads_the_neighbours(knowing, with_chain):
    """A step from O to B-LOC costs more than the word "sea" is worth."""
    transitions = np.zeros((5, 5))
    transitions[0, 3] = -20
    model = with_chain(knowing(), transitions)
    assert tag(model, ["the", "sea"]).tags != ("O", "B-LOC")
    assert tag(model, ["boy", "sea"]).tags == ("B-PER", "B-LOC")


@pytest.mark.parametrize(
    ("labels", "entities"),
    [
        # The words are: the boy bird sea tree; they mean the labels 0, 1, 2, 3, 4.
        (("O", "B-X", "I-X", "B-Y", "I-Y"), [("X", "boy bird"), ("Y", "sea tree")]),
        (("O", "I-X", "B-X", "I-Y", "B-Z"), [("X", "boy"), ("X", "bird"), ("Y", "sea"),
                                             ("Z", "tree")]),
        (("O", "B-X", "E-X", "S-Y", "S-Z"), [("X", "boy bird"), ("Y", "sea"), ("Z", "tree")]),
        (("O", "PER", "LOC", "ORG", "MISC"), [("PER", "boy"), ("LOC", "bird"), ("ORG", "sea"),
                                              ("MISC", "tree")]),
        (("DT", "NN", "VB", "JJ", "IN"), []),
        (("0", "B_X", "I_X", "B_Y", "I_Y"), [("X", "boy bird"), ("Y", "sea tree")]),
        (("none", "X:B", "X:I", "Y:B", "Y:I"), [("X", "boy bird"), ("Y", "sea tree")]),
        (("o", "b-x", "i-x", "b-y", "i-y"), [("x", "boy bird"), ("y", "sea tree")]),
        (("O", "B-X", "I-X", "MISC", "[PAD]"), [("X", "boy bird"), ("MISC", "sea"),
                                                ("[PAD]", "tree")]),
        (("0", "PER", "LOC", "ORG", "MISC"), [("PER", "boy"), ("LOC", "bird"), ("ORG", "sea"),
                                              ("MISC", "tree")]),
        ((), []),
    ],
)  # fmt: skip
def test_labels_as_others_name_them(knowing, labels, entities):
    model = knowing()
    described = dataclasses.replace(model.description, labels=labels)
    actual = tag(dataclasses.replace(model, description=described), "the boy bird sea tree")
    names = labels or tuple(f"LABEL_{number}" for number in range(5))
    assert actual.tags == names
    assert [(entity.type, entity.text) for entity in actual.entities] == entities


@pytest.mark.parametrize("labels", [("O", "B-X", "I-X", "Y", "Z"), ("O", "A", "X", "Y", "Z")])
def test_neighbours_of_a_label_without_prefix_are_one_entity(knowing, labels):
    model = knowing()
    described = dataclasses.replace(model.description, labels=labels)
    actual = tag(dataclasses.replace(model, description=described), "sea sea bird tree sea")
    assert [(entity.type, entity.text) for entity in actual.entities] == [
        *(("Y", "sea sea"), ("X", "bird"), ("Z", "tree"), ("Y", "sea"))
    ]


def test_what_labels_mean_is_said_once(knowing, capsys):
    model, words = knowing(), ["boy", "sea", "tree"]
    labels = ("OUTSIDE", "B_X", "I_X", "B_Y", "<unk>")
    named = dataclasses.replace(
        model, description=dataclasses.replace(model.description, labels=labels)
    )
    capsys.readouterr()
    assert tag(named, words).tags == tag(named, words).tags == ("B_X", "B_Y", "<unk>")
    said = "scheme BIO, 3 types; O is 'OUTSIDE'; B-X is 'B_X'; without a prefix: <unk>"
    assert capsys.readouterr().err == f"labels of the model: {said}\n"
    tag(model, words)
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_scores_of_first_pieces_are_the_module(make_model, tokenizer):
    model = make_model("tagging", num_labels=4)
    words = ["the", "players", "walked", "zzz", "boys"]
    ids = jnp.array([tokenizer.encode_batch([" ".join(words)])[0].ids])
    logits = jax.jit(model.module.apply)({"params": model.params}, ids)
    # [CLS] the play ##er ##s walk ##ed [UNK] boy ##s [SEP]
    firsts = jax.nn.softmax(logits[0, jnp.array([1, 2, 5, 7, 8])], axis=-1)
    actual = tag(model, words)
    assert actual.tags == tuple(f"LABEL_{label}" for label in firsts.argmax(axis=-1))
    np.testing.assert_allclose(
        [word.score for word in actual.words], firsts.max(axis=-1), rtol=1e-5
    )


def test_records(knowing, tmp_path):
    row = Example("boy bird", fields={"id": "7", "tags": 1}, label_field="tags")
    PREDICT.write(tmp_path / "a.jsonl", [row], [tag(knowing(), "boy bird")])
    score = pytest.approx(SURE)
    assert json.loads((tmp_path / "a.jsonl").read_text()) == {
        "id": "7",
        "expected": 1,
        "words": ["boy", "bird"],
        "tags": ["B-PER", "I-PER"],
        "scores": [score, score],
        "entities": [
            {"type": "PER", "text": "boy bird", "score": score, "start": 0, "end": 8,
             "words": [0, 2]}
        ],
    }  # fmt: skip


def test_entities_as_characters_of_the_text(knowing, tmp_path):
    text = "A boy-bird (sea)"
    found = [[2, 5, "PER"], [6, 10, "PER"], [12, 15, "LOC"]]
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(json.dumps({"id": 3, "text": text, "label": [[2, 5, "X"]]}))
    predict(knowing(), "tagging", source, target, {"output_format": "doccano"})
    assert json.loads(target.read_text()) == {"id": "3", "text": text, "label": found}
    predict(knowing(), "tagging", source, tmp_path / "all.jsonl", {})
    record = json.loads((tmp_path / "all.jsonl").read_text())
    assert (record["text"], record["label"]) == (text, [[2, 5, "X"]])
    assert [[each["start"], each["end"], each["type"]] for each in record["entities"]] == found
    # Also of words that a file with offsets was read into.
    words, spans = ("the", "boy", "bird", ","), ((1, 4), (6, 9), (9, 13), (13, 14))
    sentence = Sentence(words, text="(the) boybird,", spans=spans)
    assert entities_of(*taggings(knowing(), [sentence])) == [("PER", "boybird", 6, 13, (1, 3))]


def test_refused_sentences(knowing):
    with pytest.raises(ExampleError, match="7 is not a sentence; give a string or a list of") as at:
        list(taggings(knowing(), ["boy", 7]))
    assert at.value.index == 1
    with pytest.raises(ExampleError, match=r"^example 0: \['a', 1\] is not a sentence"):
        list(taggings(knowing(), [["a", 1]]))
    with pytest.raises(UserError, match="the sentences are one string, 'boy'; give a list"):
        knowing().tag("boy")
    with pytest.raises(UserError, match="the sentences are one dict, {'words': .*; give a list"):
        knowing().tag({"words": ["a", "boy"], "id": "1"})


def test_models_that_do_not_tag(model):
    with pytest.raises(UserError, match="BertForPreTraining does not tag words; .* head tagging"):
        model.tag(["boy"])


def test_a_limit_without_space_for_a_word(knowing):
    model = knowing()
    template = Template(single="cls A sep sep", pair="cls A sep B sep")
    description = dataclasses.replace(model.tokenizer.description, template=template)
    tokenizer = model.tokenizer.with_description(description)
    model = dataclasses.replace(model, tokenizer=tokenizer)
    with pytest.raises(OptionError, match="^max_length is 3; a word needs at least 4 tokens"):
        model.tag(["boy"], max_length=3)


def test_a_saved_chain_tags_as_before(knowing, with_chain, tmp_path):
    transitions = np.zeros((5, 5))
    transitions[0, 3] = -20
    model = with_chain(knowing(), transitions)
    model.save(tmp_path / "model")
    again = bert_jax.load(tmp_path / "model")
    assert again.report.complete
    sentence = ["the", "sea", "boy", "bird"]
    assert tag(again, sentence) == tag(model, sentence)


def test_a_model_without_a_chain_may_get_a_new_one(knowing, tmp_path):
    knowing().save(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    path.with_name(MANIFEST).unlink()
    path.write_text(json.dumps({**json.loads(path.read_text()), "use_crf": True}))
    again = bert_jax.load(tmp_path / "model")
    assert again.report.new == ("crf_end", "crf_start", "crf_transitions")
    assert tag(again, ["the", "boy", "bird"]).tags == ("O", "B-PER", "I-PER")
