"""Token classification in Hugging Face's form: by hand, and as transformers' pipeline."""

import dataclasses

import numpy as np
import pytest

import bert_jax
from bert_jax.metrics.tag_names import TagNames
from bert_jax.models.head import with_fields
from bert_jax.tasks.tagging.pieces import Labelled, ScoredPiece, entities, group
from bert_jax.tokenization import train_byte_level_bpe

LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
STRATEGIES = ("simple", "first", "average", "max")
TEXTS = [
    "the boys walked to the sea , and the birds sang .",
    "unknownword players played long songs",
    "The SHELLS\tWarmed\u00e9d walker's zzz dogs.",
    "",
    "boys walked to the seas . " * 20,
]


def scored(*pieces):
    """Pieces of a text without spaces, by their scores; None is the start of a word."""
    made, continues = [], False
    for scores in pieces:
        if scores is None:
            continues = False
            continue
        start = 2 * len(made)
        values = np.array(scores)
        made.append(ScoredPiece("xx", len(made) + 1, start, start + 2, continues, values))
        continues = True
    return made


def test_labels_of_words_by_hand():
    pieces = scored(
        *([0.0, 0.6, 0.4, 0.0, 0.0], [0.1, 0.0, 0.0, 0.9, 0.0], [0.5, 0.4, 0.1, 0.0, 0.0]),
        *(None, [0.3, 0.0, 0.3, 0.4, 0.0], [0.2, 0.0, 0.8, 0.0, 0.0]),
    )

    def found(strategy):
        made = entities([pieces], LABELS, strategy)
        return [(each.label, round(each.score, 6), each.start, each.end) for each in made]

    assert found("simple") == [
        *(("PER", 0.6, 0, 2), ("LOC", 0.9, 2, 4)),
        *(("LOC", 0.4, 6, 8), ("PER", 0.8, 8, 10)),
    ]
    assert found("first") == [("PER", 0.6, 0, 6), ("LOC", 0.4, 6, 10)]
    # The means are 0.2, 1 / 3, 1 / 6, 0.3, 0 and 0.25, 0, 0.55, 0.2, 0: B-PER and I-PER.
    assert found("average") == [("PER", round((1 / 3 + 0.55) / 2, 6), 0, 10)]
    assert found("max") == [("LOC", 0.9, 0, 6), ("PER", 0.8, 6, 10)]


def test_windows_keep_the_longest_of_entities_that_overlap():
    one, other = [0.0, 0.7, 0.3, 0.0, 0.0], [0.0, 0.2, 0.8, 0.0, 0.0]
    first, second = scored(one, other), scored(one, other, other)[1:]
    third = [dataclasses.replace(second[0], scores=np.array(one))]

    def found(*windows):
        made = entities(windows, LABELS, "simple")
        return [(each.label, round(each.score, 6), each.start, each.end) for each in made]

    assert found(first, second) == [("PER", 0.8, 2, 6)]  # of equal length, the better one
    assert found(first, third) == [("PER", 0.75, 0, 4)]
    assert found(first, second, third) == [("PER", 0.8, 2, 6)]


def test_groups_of_other_schemes():
    def groups(*labels):
        words = [Labelled(each, 0.5, number, number + 1) for number, each in enumerate(labels)]
        names = TagNames.from_labels(("O", *labels))
        return [(each.label, each.start, each.end) for each in group(words, names)]

    assert groups("B-PER", "I-PER", "E-PER", "S-LOC", "O") == [
        ("PER", 0, 3),
        ("LOC", 3, 4),
        ("O", 4, 5),
    ]
    assert groups("PER", "PER", "LOC") == [("PER", 0, 2), ("LOC", 2, 3)]


@pytest.fixture(scope="module")
def model(make_model):
    tagger = make_model("tagging", num_labels=5)
    return dataclasses.replace(
        tagger, description=dataclasses.replace(tagger.description, labels=LABELS)
    )


def ask(client, inputs, **parameters):
    answer = client.post("/", json={"inputs": inputs, "parameters": parameters})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_pieces_of_a_long_text_are_each_read_once(serve, model):
    client = serve({"tags": model})
    made = ask(client, TEXTS[-1], aggregation_strategy="none", ignore_labels=[])
    sentence = ["boy", "##s", "walk", "##ed", "to", "the", "sea", "##s", "."]
    assert [piece["word"] for piece in made] == 20 * sentence
    assert [piece["index"] for piece in made] == list(range(1, 181))
    assert made[9]["start"] == 26


def test_words_of_a_crf_are_grouped(serve, model):
    count = len(LABELS)
    params = {
        **model.params,
        "crf_transitions": np.zeros((count, count), np.float32),
        "crf_start": np.zeros(count, np.float32),
        "crf_end": np.zeros(count, np.float32),
    }
    config = with_fields(model.config, {"use_crf": True})
    description = dataclasses.replace(model.description, config=config)
    module = description.make_module(model.module.execution)
    chained = dataclasses.replace(model, params=params, description=description, module=module)
    client = serve({"tags": chained})
    text = "the boys walked to the sea"
    (expected,) = chained.tag([text])
    made = ask(client, text, aggregation_strategy="first")
    assert [(each["entity_group"], each["start"], each["end"]) for each in made] == [
        (each.type, each.start, each.end) for each in expected.entities
    ]
    body = {"inputs": text, "parameters": {"aggregation_strategy": "average"}}
    answer = client.post("/", json=body)
    assert (answer.status_code, answer.json()["field"]) == (422, "parameters.aggregation_strategy")


def test_windows_with_too_many_tokens_are_refused_before_there_are_any(serve, model):
    client = serve({"tags": model}, max_tokens=1000)
    body = {"inputs": "the " * 100, "parameters": {"stride": 29}}
    answer = client.post("/", json=body)
    assert (answer.status_code, answer.json()["field"]) == (422, "inputs")
    assert "it has 2,130 tokens in 71 windows, and at most 1,000" in answer.json()["error"]


@pytest.fixture(scope="module")
def directories(model, tmp_path_factory):
    """Taggers of 32 tokens with WordPiece and with byte-level BPE, and random parameters."""
    transformers = pytest.importorskip("transformers")
    root = tmp_path_factory.mktemp("taggers")
    model.save(root / "wordpiece")
    tokenizer = train_byte_level_bpe([" ".join(TEXTS).lower()] * 4, vocab_size=300)
    tokenizer.save(root / "byte_level", max_length=32)
    transformers.set_seed(0)
    config = transformers.RobertaConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=34,
        type_vocab_size=1,
        initializer_range=0.3,
        pad_token_id=tokenizer.special_ids.pad,
        id2label=dict(enumerate(LABELS)),
        label2id={label: number for number, label in enumerate(LABELS)},
    )
    transformers.RobertaForTokenClassification(config).save_pretrained(root / "byte_level")
    return root


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["wordpiece", "byte_level"])
@pytest.mark.filterwarnings("ignore")
def test_answers_are_those_of_transformers(serve, directories, kind):
    transformers = pytest.importorskip("transformers")
    path = directories / kind
    pipeline = transformers.pipeline("token-classification", model=str(path))
    client = serve({"tags": bert_jax.load(path)})
    compared = 0
    for strategy in ("none", *STRATEGIES):
        is_none = strategy == "none"
        strides = [None] if is_none else [None, 0, 5, 20]
        for stride in strides:
            parameters = {"aggregation_strategy": strategy, "ignore_labels": ["LOC", "B-LOC"]}
            parameters |= {} if stride is None else {"stride": stride}
            texts = TEXTS[:-1] if stride is None else TEXTS
            for text, made in zip(texts, ask(client, texts, **parameters), strict=True):
                expected = pipeline(text, **parameters)
                for each in expected:  # the first piece of a window may have the space before it
                    each["start"] += text[each["start"] : each["end"]].startswith(" ")
                names = ["entity", "index", "word"] if is_none else ["entity_group"]
                names += ["start", "end"]
                assert [[each[name] for name in names] for each in made] == [
                    [each[name] for name in names] for each in expected
                ], (strategy, stride, text)
                scores = [each["score"] for each in expected]
                np.testing.assert_allclose([each["score"] for each in made], scores, atol=1e-6)
                compared += len(made)
    assert compared > 100
