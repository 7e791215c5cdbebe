"""Words that join a vocabulary after it was made."""

import itertools
import json
import time

import hypothesis
import hypothesis.strategies as st
import pytest
import tokenizers

from bert_jax.errors import UserError
from bert_jax.tokenization import BertSwitches, WordPieceTokenizer, load_tokenizer
from bert_jax.tokenization.wordpiece import MAX_CHARACTERS_PER_WORD
from tests.tokenization.folders import BPE_FILES, V, bert


def pieces_of(tokenizer, text: str) -> list[str]:
    return tokenizer.encode_batch([text])[0].tokens[1:-1]


def added_to(tokenizer, words: list[str]) -> list[str]:
    longer = tokenizer.with_words(words)
    return [longer.id_to_token(i) for i in range(tokenizer.vocab_size, longer.vocab_size)]


def test_a_new_word_is_one_piece_at_the_end_of_another_vocabulary(uncased, uncased_pieces):
    fingerprint = uncased.fingerprint()
    assert uncased.encode_sentences(["the dogs"]) == [[5, 10, 8]]

    longer = uncased.with_words(["dogs", "Playing"])

    assert (uncased.vocab_size, uncased.token_to_id("dogs")) == (20, None)
    assert uncased.encode_sentences(["the dogs"]) == [[5, 10, 8]]
    assert uncased.fingerprint() == fingerprint != longer.fingerprint()

    assert [longer.id_to_token(i) for i in range(22)] == [*uncased_pieces, "dogs", "playing"]
    (encoding,) = longer.encode_batch(["The DOGS, playing"])
    assert encoding.tokens == ["[CLS]", "the", "dogs", ",", "playing", "[SEP]"]
    assert encoding.ids == [2, 5, 20, 11, 21, 3]
    assert encoding.offsets == [(0, 0), (0, 3), (4, 8), (8, 9), (10, 17), (0, 0)]
    assert encoding.word_ids == [None, 0, 1, 2, 3, None]
    assert longer.encode_sentences(["the dogs"]) == [[5, 20]]
    assert longer.decode([5, 20, 21, 12]) == "the dogs playing."
    assert longer.continuations().nonzero()[0].tolist() == [7, 8, 19]


def test_words_are_normalised_and_known_ones_passed_over(uncased, cased):
    assert added_to(uncased, [" Café\u0301S ", "\u200bDÔGS\n"]) == ["cafes", "dogs"]
    assert added_to(cased, [" Cafés", "DOGS"]) == ["Cafés", "DOGS"]
    assert added_to(uncased, ["The", "dogs", "PLAY", "dogs", "DOGS", "cafés"]) == ["dogs", "cafes"]
    assert added_to(uncased, []) == []
    # "ing" is known inside of words only.
    assert added_to(uncased, ["ing"]) == ["ing"]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("", "words: nothing is left of '' once normalised; remove it"),
        (" \u200b\n", r"words: nothing is left of ' \u200b\n' once normalised; remove it"),
        ("New York", "words: 'New York' is always split into 'new', 'york', so it would never"),
        ("covid-19", "words: 'covid-19' is always split into 'covid', '-', '19', so"),
        ("中国", "words: '中国' is always split into '中', '国', so"),
        ("[MASK]", r"words: '[MASK]' is always split into '[', 'mask', ']', so"),
        ("##ed", "words: '##ed' is always split into '#', '#', 'ed', so"),
        ("ab" * 51, "words: 'abababababababababab'… has 102 characters; words of more than 100"),
        (7, "tokenizer: text 1 is 7; give a string"),
    ],
)
def test_words_that_no_text_can_have_are_refused(uncased, word, message):
    with pytest.raises(UserError) as error:
        uncased.with_words(["dogs", word])

    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_which_texts_have_the_new_words(uncased, cased_pieces):
    longest = "x" * MAX_CHARACTERS_PER_WORD
    unsplit = WordPieceTokenizer.from_vocabulary(cased_pieces, BertSwitches(False, None, False))
    longer = uncased.with_words(["playi", "cafes", longest])

    assert longer.encode_sentences([longest.upper()]) == [[22]]
    assert pieces_of(uncased, "plays playing") == ["play", "##s", "play", "##ing"]
    # Nothing continues "playi" with "ng", and the longest beginning is the only one tried.
    assert pieces_of(longer, "plays playing playis") == ["play", "##s", "[UNK]", "playi", "##s"]
    assert pieces_of(longer, "cafe cafes cafess") == ["cafe", "cafes", "cafes", "##s"]
    assert pieces_of(unsplit, "中国人") == ["[UNK]"]
    assert pieces_of(unsplit.with_words(["中国人"]), "中国人 中国") == ["中国人", "中国"]
    with pytest.raises(UserError, match="give a list of strings"):
        uncased.with_words("dogs")


PIECES = [
    *["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
    *["a", "##a", "b", "##b", "ab", "##ab", "é", "中", ",", "[", "]", "mask"],
]
WORDS = st.text("abcé", min_size=1, max_size=4)
TEXTS = st.lists(
    st.text(st.one_of(st.sampled_from("abcé中, []"), st.characters(exclude_categories=["Cs"]))),
    max_size=5,
)


@pytest.mark.slow
@hypothesis.given(st.lists(WORDS, max_size=4), TEXTS)
@hypothesis.settings(max_examples=200)
def test_only_words_that_begin_with_a_new_word_are_read_in_another_way(words, texts):
    """For cased text, so that a word is spelled as in the vocabulary."""
    old = WordPieceTokenizer.from_vocabulary(PIECES, BertSwitches(False, False, True))
    new = old.with_words(words)
    added = {new.id_to_token(i) for i in range(old.vocab_size, new.vocab_size)}
    assert added == set(words) - set(PIECES)

    for text, before, after in zip(
        texts, old.encode_batch(texts), new.encode_batch(texts), strict=True
    ):
        for word in {*before.word_ids, *after.word_ids} - {None}:
            was, now = (
                [
                    (e.tokens[i], e.ids[i], e.offsets[i])
                    for i in range(len(e))
                    if e.word_ids[i] == word
                ]
                for e in (before, after)
            )
            spelled = text[was[0][2][0] : was[-1][2][1]]
            if spelled in added:
                assert now == [(spelled, new.token_to_id(spelled), (was[0][2][0], was[-1][2][1]))]
            elif not spelled.startswith(tuple(added)):
                assert was == now


def test_saved_files_have_the_words_and_load_to_the_same_tokenizer(uncased, tmp_path):
    longer = uncased.with_words(["dogs", "covid"])
    longer.save(tmp_path)

    assert (tmp_path / "vocab.txt").read_text().splitlines()[19:] == ["##国", "dogs", "covid"]
    definition = json.loads((tmp_path / "tokenizer.json").read_text())
    assert definition["model"]["vocab"]["covid"] == 21
    assert [token["content"] for token in definition["added_tokens"]] == [
        *["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    ]
    text = "The dogs, Covids party"
    for path in (tmp_path, tmp_path / "tokenizer.json", tmp_path / "vocab.txt"):
        loaded = load_tokenizer(path)
        assert loaded.encode_batch([text]) == longer.encode_batch([text])
        assert loaded.fingerprint() == longer.fingerprint()


def test_added_words_take_more_words(uncased):
    once, twice = uncased.with_words(["dogs", "cats"]), uncased.with_words(["dogs"])
    marked = uncased.with_words(["[E1]", "<user>"], whole=True).with_words(["dogs"])

    assert twice.with_words(["dogs", "cats"]).fingerprint() == once.fingerprint()
    assert [marked.id_to_token(i) for i in (20, 21, 22)] == ["[E1]", "<user>", "dogs"]
    assert marked.encode_sentences(["the dogs [E1]<user>"]) == [[5, 22, 20, 21]]


def test_the_rules_of_the_tokenizer_decide_what_a_word_is(uncased_pieces):
    """Text is kept as it is and split only at spaces."""
    vocabulary = {piece: token_id for token_id, piece in enumerate(uncased_pieces)}
    library = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    library.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    beside = tokenizers.Tokenizer.from_str(library.to_str())
    beside.add_tokens(["[E1]", "[E2]"])
    tokenizer = WordPieceTokenizer(library)

    assert tokenizer.switches is None
    longer = tokenizer.with_words(["covid-19", "中国"])
    assert longer.encode_sentences(["the covid-19 中国"]) == [[5, 20, 21]]
    with pytest.raises(UserError, match="words: '##ed' would be a piece inside words; give whole"):
        tokenizer.with_words(["##ed"])
    # Tokens beside the vocabulary keep their ids, so no word joins them.
    with pytest.raises(UserError, match=r"2 added tokens beside its vocabulary \(\[E1\], \[E2\]\)"):
        WordPieceTokenizer(beside).with_words(["dogs"])


MARKERS = ["[E1]", "<user>", "covid-19", "[E1]", "ice cream"]


@pytest.mark.parametrize("name", ["uncased", "byte_level", "cat_tokenizer", "unigram"])
def test_markers_are_found_before_a_text_is_split(request, tmp_path, name):
    old = request.getfixturevalue(name)
    new = old.with_words(MARKERS, whole=True)
    new.save(tmp_path / "saved")
    saved = load_tokenizer(tmp_path / "saved")
    assert saved.fingerprint() == new.fingerprint() != old.fingerprint()
    markers = [marker for marker in dict.fromkeys(MARKERS) if old.token_to_id(marker) is None]
    ids = list(range(old.vocab_size, old.vocab_size + len(markers)))
    text = "the[E1] xcovid-19x <user> ice cream <USER>"
    for each in (new, saved):
        assert each.vocab_size == old.vocab_size + len(markers)
        assert [each.token_to_id(marker) for marker in markers] == ids
        (encoding,) = each.encode_batch([text])
        spelled = [text[slice(*offsets)] for offsets in encoding.offsets]
        added = [(i, word) for i, word in zip(encoding.ids, spelled, strict=True) if i in ids]
        of_text = ["[E1]", "covid-19", "<user>", "ice cream"]
        assert added == [(each.token_to_id(word), word) for word in of_text if word in markers]
        (sentence,) = each.encode_sentences([text])
        assert [i for i in sentence if i in ids] == [i for i, _ in added]
        assert "<user>" in each.decode(encoding.ids)
    assert [e.ids for e in new.encode_batch(["the dog"])] == [
        e.ids for e in old.encode_batch(["the dog"])
    ]
    assert old.token_to_id("<user>") is None
    with pytest.raises(UserError, match="^words: nothing is left of ' '; remove it"):
        old.with_words([" "], whole=True)


def test_a_piece_of_the_vocabulary_may_be_a_marker(tmp_path):
    """It keeps its id; "b", twice in the vocabulary, leaves an id without a piece."""
    pieces = [*PIECES, "[unused1]", "b"]
    old = WordPieceTokenizer.from_vocabulary(pieces, BertSwitches(True, None, True))
    assert old.encode_sentences(["[unused1]"]) != [[17]]

    new = old.with_words(["[unused1]", "[E1]"], whole=True)
    new.save(tmp_path)

    for each in (new, load_tokenizer(tmp_path)):
        assert each.vocab_size == old.vocab_size + 1 == 20
        assert each.encode_sentences(["b[unused1][E1]"]) == [[18, 17, 19]]
        assert each.token_to_id("[MASK]") == old.special_ids.mask


def test_many_added_tokens_and_repeated_merges_are_read_in_linear_time(tmp_path):
    """Less than two seconds; 8,000 tokens one by one took a minute."""
    begin = time.process_time()
    tokens = {f"[E{number}]": V + number for number in range(8000)}
    for name, content in bert(added_tokens__json=tokens, rows=V + 8000).items():
        text = content if isinstance(content, str) else json.dumps(content)
        (tmp_path / name).write_text(text)
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.encode_sentences(["the [E7999]"]) == [[5, V + 7999]]
    (tmp_path / "bpe").mkdir()
    (tmp_path / "bpe" / "vocab.json").write_text(json.dumps(BPE_FILES["vocab.json"]))
    (tmp_path / "bpe" / "merges.txt").write_text(BPE_FILES["merges.txt"] * 10_000)
    assert load_tokenizer(tmp_path / "bpe").encode_sentences(["dog"]) == [[265]]
    assert time.process_time() - begin < 20


def test_many_words_and_markers_take_linear_time(uncased, byte_level):
    """Less than a second each; 8,000 one by one took a minute."""
    markers = [f"[E{number}]" for number in range(8000)]
    words = ["".join(letters) for letters in itertools.product("abcdefghijklmnopqrst", repeat=3)]
    for tokenizer in (uncased, byte_level):
        begin = time.process_time()
        assert tokenizer.with_words(markers, whole=True).vocab_size >= tokenizer.vocab_size + 7999
        longer = tokenizer.with_words(words)
        assert longer.vocab_size >= tokenizer.vocab_size + 7990
        assert time.process_time() - begin < 20


@pytest.mark.slow
def test_a_long_word_takes_linear_time(uncased):
    """Some two seconds; a word of 5 MB took half a minute, and 3 GB."""
    begin = time.process_time()
    assert uncased.encode_batch(["a" * 5_000_000])[0].ids == [2, 1, 3]
    assert time.process_time() - begin < 15


@pytest.mark.slow
def test_transformers_reads_the_saved_words(uncased, cased, tmp_path):
    transformers = pytest.importorskip("transformers")
    texts = ["The DOGS, covid! covids xcovid covid-19", "Cafés 中国 dog's [MASK] dogs", "", "party"]
    for name, tokenizer in {"uncased": uncased, "cased": cased}.items():
        longer = tokenizer.with_words(["covid", "dogs", "Cafés", "art", "国"])
        longer.save(tmp_path / name)

        peer = transformers.AutoTokenizer.from_pretrained(tmp_path / name)
        expected = peer(texts, return_offsets_mapping=True)

        encodings = longer.encode_batch(texts)
        assert expected["input_ids"] == [encoding.ids for encoding in encodings]
        assert expected["offset_mapping"] == [encoding.offsets for encoding in encodings]
        assert len(peer) == longer.vocab_size
        assert peer.convert_tokens_to_ids("covid") == tokenizer.vocab_size
        # Only vocab.txt, and only tokenizer.json.
        vocabulary = dict(map(reversed, enumerate((tmp_path / name / "vocab.txt").open())))
        assert vocabulary["covid\n"] == tokenizer.vocab_size
        again = tokenizers.Tokenizer.from_file(str(tmp_path / name / "tokenizer.json"))
        assert [e.ids for e in again.encode_batch(texts)] == expected["input_ids"]


def test_a_piece_of_the_vocabulary_becomes_a_special_token(tmp_path):
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[Q] ", "[unused0]", "a", "[", "]"]
    plain = WordPieceTokenizer.from_vocabulary(pieces, BertSwitches(True, None, True))
    assert [plain.known_token(text) for text in ("[Q] ", "a b ", "b", "")] == [
        "[Q] ",
        "a",
        None,
        None,
    ]
    marked = plain.with_special_tokens(["[Q] ", "[unused0] ", "a ", "b "])
    marked.save(tmp_path)
    for tokenizer in (marked, load_tokenizer(tmp_path)):
        assert tokenizer.vocab_size == 10
        # "a" was a piece of text before, and stays one; "b" is none.
        assert pieces_of(tokenizer, "[Q] A [unused0] ab") == ["[Q] ", "a", "[unused0]", "[UNK]"]
    assert pieces_of(plain, "[unused0]") == ["[", "[UNK]", "]"]
