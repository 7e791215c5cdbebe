"""Entities in texts whose words are their pieces: of SentencePiece, and without spaces."""

import dataclasses
import random

import jax
import numpy as np
import pytest
import tokenizers

from bert_jax.data.windows.words import WordWindows, piece_words
from bert_jax.tokenization import load_tokenizer, train_byte_level_bpe
from bert_jax.tokenization.encoding import Pieces
from bert_jax.tokenization.interface import XLM_ROBERTA

# Score 0: special; the piece of a name scores more than its characters.
PIECES = [
    *(("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)),
    *(("▁", -4.0), ("▁the", -3.0), ("▁berlin", -3.0), (".", -5.0), ("ing", -5.0)),
    *(("กรงเทพ", -3.0), ("ฉัน", -3.0), ("ที่", -3.0), ("東京", -3.0), ("に", -5.0), ("住む", -5.0)),
    *((character, -6.0) for character in "abc東"),
    ("<mask>", 0.0),
]
PLACES = ("กรงเทพ", "▁berlin", "東京")


@pytest.fixture(scope="module")
def unigram(tmp_path_factory):
    """A tokenizer as XLM-R's."""
    directory = tmp_path_factory.mktemp("unigram")
    library = tokenizers.Tokenizer(tokenizers.models.Unigram(PIECES, unk_id=3))
    library.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [tokenizers.pre_tokenizers.WhitespaceSplit(), tokenizers.pre_tokenizers.Metaspace()]
    )
    library.decoder = tokenizers.decoders.Metaspace()
    library.add_special_tokens([piece for piece, score in PIECES if not score])
    library.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    library.save(str(directory / "tokenizer.json"))
    return load_tokenizer(directory, kind=XLM_ROBERTA)


@pytest.fixture(scope="module")
def tagger(label_by_piece, unigram):
    """Labels a place by its piece alone."""
    return label_by_piece(unigram, ("O", "B-LOC", "I-LOC"), dict.fromkeys(PLACES, 1))


@pytest.mark.parametrize(
    ("text", "entities"),
    [
        # As transformers 5.24 finds them with aggregation_strategy="simple".
        ("ฉันที่กรงเทพ", [(6, 12)]),
        ("กรงเทพที่ฉัน", [(0, 6)]),
        ("the กรงเทพ.", [(4, 10)]),
        ("(กรงเทพ)", [(1, 7)]),
        ("東京に住む", [(0, 2)]),
        ("the 東京berlin กรงเทพกรงเทพ", [(4, 6), (13, 19), (19, 25)]),
        ("the berlin.", [(4, 10)]),
    ],
)
def test_entities_are_where_the_pieces_are(tagger, text, entities):
    (actual,) = tagger.tag([text])
    assert [(entity.start, entity.end) for entity in actual.entities] == entities
    assert {entity.type for entity in actual.entities} == {"LOC"}
    assert all(text[word.start : word.end] == word.text for word in actual.words)


@pytest.fixture(scope="module")
def byte_level():
    """A tokenizer as RoBERTa's, with "berlin" and " berlin" as pieces."""
    texts = ["(berlin) berlin"] * 3
    return train_byte_level_bpe(texts, vocab_size=274, add_prefix_space=False)


@pytest.mark.parametrize(
    ("text", "entities"),
    [
        # As transformers 5.24 finds them with aggregation_strategy="simple".
        ("the berlin.", [(4, 10), (10, 11)]),
        ("theberlin", []),
        ("the berlining a", [(4, 13)]),
        ("(berlin)", []),
        ("the  berlin . ", [(5, 11), (12, 13)]),
        ("東京.", [(0, 2), (2, 3)]),
    ],
)
def test_texts_have_their_own_pieces(label_by_piece, unigram, text, entities):
    numbers = dict.fromkeys((*PLACES, "."), 1) | {"ing": 2}
    model = label_by_piece(unigram, ("O", "B-LOC", "I-LOC"), numbers)
    (actual,) = model.tag([text])
    assert [(entity.start, entity.end) for entity in actual.entities] == entities


def test_a_list_of_words_is_split_as_given(label_by_piece, byte_level, unigram):
    model = label_by_piece(byte_level, ("O", "B-IN", "B-AFTER"), {"berlin": 1, "Ġberlin": 2})
    # Nothing is before the first word of a text, and a space before each word of a list.
    sentences = ["(berlin)", "berlin berlin", "\n a  berlin", ["(", "berlin", ")"], ["(berlin)"]]
    actual = [[(e.type, e.start, e.end) for e in each.entities] for each in model.tag(sentences)]
    assert actual == [
        [("IN", 1, 7)],
        [("IN", 0, 6), ("AFTER", 7, 13)],
        [("AFTER", 5, 11)],
        [("AFTER", 2, 8)],
        [],  # a word has the tag of its first piece
    ]
    assert [word.text for word in model.tag(["(berlin)"])[0].words] == ["(", "berlin", ")"]
    for tokenizer in (byte_level, unigram):
        model = label_by_piece(tokenizer, ("O", "B-X"), {})
        assert [each.words for each in model.tag(["", " ", "\n \t", []])] == [()] * 4


@pytest.mark.slow
def test_a_long_text_is_read_in_windows(tagger):
    text = "ฉันที่กรงเทพ" * 20
    for length in (None, 9):
        (actual,) = tagger.tag([text], max_length=length)
        assert len(actual.words) == 60
        assert [entity.start for entity in actual.entities] == [*range(6, 240, 12)]


@pytest.mark.parametrize(
    ("text", "pieces", "words"),
    [
        # Between spaces without such characters words are whole; a character with several pieces
        # is one word.
        (
            "iPhone 在2020年",
            [
                ("i", 0, 1),
                ("Phone", 1, 6),
                ("▁在", 6, 8),
                ("20", 8, 10),
                ("20", 10, 12),
                ("年", 12, 13),
            ],
            ["iPhone", "在", "20", "20", "年"],
        ),
        ("the 北京.", [("▁", 3, 4), ("t", 0, 1), ("he", 1, 3)], ["the"]),
        ("a 北京.", [("a", 0, 1), ("▁北京", 1, 4), (".", 4, 5)], ["a", "北京", "."]),
        ("2年。", [("▁2年", 0, 2), ("。", 2, 3)], ["2年", "。"]),
        ("ชa", [("à", 0, 1), ("¸", 0, 1), ("a", 1, 2)], ["ช", "a"]),
    ],
)
def test_words_of_pieces_by_hand(text, pieces, words):
    tokens, starts, ends = zip(*pieces, strict=True)
    encoded = Pieces([0] * len(pieces), list(tokens), [*zip(starts, ends, strict=True)], [])
    actual = piece_words(text, encoded, whole=True)
    assert [word.text for word in actual] == words
    assert [text[word.start : word.end] for word in actual] == words


def test_a_bare_space_decides_no_word(unigram):
    """In training as in prediction: labels stand at these positions."""
    sentence = ["the", "กรงเทพ", "x", "berlin"]
    ((row,),) = WordWindows(unigram, 16)([sentence])
    assert row.tokens == ["<s>", "▁the", "▁", "กรงเทพ", "▁", "x", "▁berlin", "</s>"]
    assert row.words == (0, 1, 2, 3)
    assert row.positions == (1, 3, 5, 6)
    (rows,) = WordWindows(unigram, 5)([sentence])
    assert [row.tokens[position] for row in rows for position in row.positions] == [
        *("▁the", "▁", "▁", "▁berlin")  # a row has no space for the second token of a word
    ]


@pytest.mark.slow
def test_entities_are_those_of_transformers(tagger, tmp_path):
    """Of random texts, where each piece has a random tag.

    A bare space is outside there, and no word here, so that only the first piece may be one.
    """
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    draw = random.Random(0)
    params = jax.tree.map(np.copy, tagger.params)
    for row in params["bert"]["embeddings"]["word_embeddings"]["embedding"][5:]:
        row[:] = np.eye(16)[draw.choice((0, 1, 2))]
    model = dataclasses.replace(tagger, params=params)
    model.save(tmp_path / "model")
    pipeline = transformers.pipeline("ner", str(tmp_path / "model"), aggregation_strategy="simple")
    pieces = [piece.replace("▁", " ") for piece, score in PIECES[5:] if score] + ["京", "x"]
    for _ in range(200):
        text = draw.choice(["東", "a", ""]) + "".join(draw.choices(pieces, k=draw.randrange(1, 9)))
        (actual,) = model.tag([text])
        ours = [(entity.type, entity.start, entity.end) for entity in actual.entities]
        peer = pipeline(text)
        assert ours == [(each["entity_group"], each["start"], each["end"]) for each in peer], text
