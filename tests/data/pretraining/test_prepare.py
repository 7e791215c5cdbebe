"""Text to corpus: literal ids, determinism, errors, statistics."""

import itertools
import json
import os
import re
import tempfile

import pytest

from bert_jax.data.pretraining.corpus import Corpus
from bert_jax.data.pretraining.diagnostics import corpus_statistics
from bert_jax.data.pretraining.options import PrepareOptions, VocabularyOptions
from bert_jax.data.pretraining.preparation.prepare import prepare, statistics
from bert_jax.data.pretraining.sources import source_specs
from bert_jax.errors import UserError
from bert_jax.files import locked
from tests.corpora import directory_bytes


@pytest.fixture
def make(tmp_path, tiny_vocabulary):
    """Prepares literal text, a document per line and a sentence per line."""

    def make_corpus(text, output="corpus", *, layout="lines", workers=1, call=None, **options):
        (tmp_path / "text.txt").write_text(text, errors="surrogateescape")
        os.utime(tmp_path / "text.txt", (1, 1))
        settings = {
            "tokenizer": str(tiny_vocabulary),
            "validation_fraction": 0.0,
            "sentences": "lines",
        }
        specs = source_specs(f"text:{tmp_path}/text.txt", {"format": layout})
        prepare(
            PrepareOptions(specs, **settings | options),
            tmp_path / output,
            **{"workers": workers, "progress": False} | (call or {}),
        )
        return Corpus.open(tmp_path / output)

    return make_corpus


def documents(corpus, split):
    """Token ids of each document."""
    part = corpus.splits[split]
    bounds = part.sentence_offsets[part.document_offsets].tolist()
    return [part.tokens[a:b].tolist() for a, b in itertools.pairwise(bounds)]


LINES = "\n".join(f"cat {'dog ' * (number % 7)}ran" for number in range(700))


@pytest.mark.slow
def test_the_corpus_does_not_depend_on_workers_or_batch_size(make, tmp_path):
    # Long documents, so that several blocks (of 256 K characters) and batches share one.
    sentence, nothing = "the cat sat " * 20 + ".\n", "\x07" * 99 + "\n"
    text = "\n\n".join([LINES, sentence * 1_300, LINES, nothing * 2_800 + "cat\ndog"])
    corpus = make(text, "whole", layout="bert", validation_fraction=0.5)
    for workers, characters in ((2, 1 << 16), (1, 1)):
        call = {"batch_characters": characters, "workers": workers}
        make(text, f"{workers}", layout="bert", validation_fraction=0.5, call=call)
        assert directory_bytes(tmp_path / f"{workers}") == directory_bytes(tmp_path / "whole")
    assert sum(split.documents for split in corpus.manifest.splits.values()) == 4
    assert [6, 7] in documents(corpus, "train") + documents(corpus, "validation")


def test_validation_documents_are_chosen_by_their_text(make):
    forth = make(LINES, "forth", validation_fraction=0.3)
    back = make("\n".join(reversed(LINES.split("\n"))), "back", validation_fraction=0.3)
    for split in ("train", "validation"):
        assert documents(forth, split) == documents(back, split)[::-1]
        assert documents(forth, split)
    assert 0 < forth.manifest.splits["validation"].documents < 400
    # Of the seven different documents all hundred copies are on one side.
    train = {tuple(ids) for ids in documents(forth, "train")}
    validation = {tuple(ids) for ids in documents(forth, "validation")}
    assert not train & validation
    assert len(train | validation) == 7
    other_seed = [
        documents(make(LINES, f"{s}", validation_fraction=0.3, seed=s), "train") for s in range(4)
    ]
    assert len({json.dumps(documents) for documents in other_seed}) > 1


def test_one_document_is_moved_where_chance_left_a_split_empty(make):
    text = "the cat sat.\ncat\nzebra " + "dog " * 600
    corpus = make(text, "a", validation_fraction=1e-9)
    last = [1] + [7] * 600
    assert documents(corpus, "train") == [[5, 6, 8, 11], [6]]
    assert documents(corpus, "validation") == [last]
    assert corpus.splits["validation"].sentence_offsets.tolist() == [0, 512, 601]
    counts = corpus.manifest.splits["validation"]
    assert (counts.unknown_tokens, counts.cut_sentences) == (1, 1)
    assert corpus.manifest.splits["train"].tokens == 5
    corpus = make(text, "b", validation_fraction=0.999999999)
    assert documents(corpus, "train") == [last]
    assert documents(corpus, "validation") == [[5, 6, 8, 11], [6]]
    assert documents(make("cat", "c", validation_fraction=0.999999999), "train") == [[6]]
    assert documents(make("cat\ndog", "d", validation_fraction=0.0), "validation") == []


def test_only_so_many_documents_of_each_source(tmp_path, tiny_vocabulary):
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(f"cat {name}\n\ndog\n\nran\n")
    specs = source_specs([f"text:{tmp_path}/{name}.txt" for name in "ab"])
    options = PrepareOptions(specs, tokenizer=str(tiny_vocabulary), validation_fraction=0.0)
    prepare(options, tmp_path / "corpus", limit=2, workers=1, progress=False)
    corpus = Corpus.open(tmp_path / "corpus")
    assert documents(corpus, "train") == [[6, 1], [7], [6, 1], [7]]
    assert corpus.splits["train"].source_documents.tolist() == [0, 2, 4]


def test_without_a_tokenizer_a_vocabulary_is_trained_from_the_train_split(make, capfd):
    text = "\n".join(f"alpha beta {'gamma' if n % 2 else 'delta'} {n}" for n in range(400))
    vocabulary = VocabularyOptions(vocab_size=80)
    corpus = make(text, "a", tokenizer=None, vocabulary=vocabulary)
    tokenizer = corpus.tokenizer()
    assert tokenizer.encode_sentences(["alpha beta gamma delta"]) == [
        [tokenizer.token_to_id(word) for word in ("alpha", "beta", "gamma", "delta")]
    ]
    assert corpus.manifest.tokenizer_fingerprint == tokenizer.fingerprint()
    # The first 18 characters are "alpha beta delta 0": they have no "g".
    few = VocabularyOptions(vocab_size=80, train_characters=18)
    tokenizer = make(text, "b", tokenizer=None, vocabulary=few).tokenizer()
    assert (tokenizer.token_to_id("g"), tokenizer.token_to_id("d") is None) == (None, False)
    byte_level = VocabularyOptions(kind="byte_level_bpe", vocab_size=300, lowercase=False)
    corpus = make(text, "c", tokenizer=None, vocabulary=byte_level)
    tokenizer = corpus.tokenizer()
    assert [tokenizer.id_to_token(i) for i in corpus.splits["train"].tokens[:2]] == [
        *("Ġalpha", "Ġbeta"),
    ]
    assert corpus.manifest.tokenizer_fingerprint == tokenizer.fingerprint()
    assert capfd.readouterr().err == ""  # progress=False


@pytest.mark.parametrize(
    ("kind", "options", "size", "unk"),
    [
        ("gpt2", {"lowercase": False}, 270, 269),
        ("t5", {}, 116, 2),
        ("marian", {"model_type": "bpe"}, 30, 1),
    ],
)
def test_a_corpus_for_models_without_cls_sep_and_mask(make, kind, options, size, unk):
    text = "\n".join(f"alpha beta {'gamma' if n % 2 else 'delta'} ta" for n in range(400))
    vocabulary = VocabularyOptions(kind=kind, vocab_size=size, **options)
    corpus = make(text, tokenizer=None, vocabulary=vocabulary, call={"progress": True})
    tokenizer = corpus.tokenizer()
    ids = tokenizer.special_ids
    assert (ids.cls, ids.sep, ids.mask, ids.unk) == (None, None, None, unk)
    assert tokenizer.decode(documents(corpus, "train")[0]).strip() == "alpha beta delta ta"
    assert corpus.manifest.splits["train"].unknown_tokens == 0
    figures = corpus_statistics(corpus, 32)
    assert (figures["documents"], "packed_padding_share" in figures) == (400, False)


HAS_NOT = "warning: the vocabulary does not have {} characters of the text, {}"


@pytest.mark.parametrize(
    ("text", "vocab_size", "share", "warning"),
    [
        # Words of one letter, one piece each, and 5 special pieces.
        ("a a a a b c d e", 10, "0.00%", ""),
        (
            "a a a a b c d e",
            6,
            "50.00%",
            HAS_NOT.format(
                "4 of 6",
                "'b', 'c', 'd' and 1 more: tokenizer.vocab_size is 6; the special tokens and the "
                "alphabet of the text are 10 pieces: give at least that, or set ",
            ),
        ),
        # The fifth word is too long for WordPiece, the fourth is not.
        (
            "ab ab ab x " + "x" * 101,
            20,
            "20.00%",
            "warning: most unknown words have more than 100 characters, which WordPiece does not",
        ),
        # A given vocabulary of whole words.
        (
            "cat cat cat é",
            None,
            "25.00%",
            HAS_NOT.format(
                "4 of 5",
                "'c', 'a', 't' and 1 more: leave tokenizer.path out to train one for this text",
            ),
        ),
    ],
)
def test_unknown_pieces_are_counted_and_explained(make, capfd, text, vocab_size, share, warning):
    given = {}
    if vocab_size:
        given = {"tokenizer": None, "vocabulary": VocabularyOptions(vocab_size=vocab_size)}
    corpus = make(text, call={"progress": True}, **given)
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("prepare: ")]
    assert lines[0].startswith(f"prepare: {share} of the tokens of the first {len(text)} character")
    assert lines[-1].endswith(f"tokens, {share} of them unknown")
    assert [line.startswith(f"prepare: {warning}") for line in lines if "warning" in line] == (
        [True] if warning else []
    )
    counts = corpus.manifest.splits["train"]
    assert f"{counts.unknown_tokens / counts.tokens:.2%}" == share


@pytest.mark.parametrize("kind", ["gpt2", "wordpiece"])
def test_a_small_text_gives_fewer_pieces(make, capfd, kind):
    vocabulary = VocabularyOptions(kind=kind, vocab_size=1000, lowercase=False)
    corpus = make("ab ab", call={"progress": True}, tokenizer=None, vocabulary=vocabulary)
    size = corpus.manifest.vocab_size
    line = f"prepare: the text is enough for {size:,} of 1,000 pieces (tokenizer.vocab_size)"
    printed = capfd.readouterr().err
    assert line in printed.splitlines()
    # The bar ends with what is there, not at a share of the limit.
    assert re.findall(r"vocabulary: 100%.* ([\d.]+)/([\d.]+) ", printed)[-1] == ("5.00", "5.00")


@pytest.mark.parametrize(
    ("text", "fraction", "warns"),
    [("cat", 0.5, True), ("cat\ndog", 1e-9, False), ("cat", 0.0, False)],
)
def test_a_single_document_leaves_none_for_validation(make, capfd, text, fraction, warns):
    corpus = make(text, call={"progress": True}, validation_fraction=fraction)
    assert (len(documents(corpus, "validation")) > 0) == (not warns and fraction > 0)
    line = (
        "prepare: warning: the text is one document, and a training needs a second one for its "
        "validation: separate documents by empty lines, or give another file"
    )
    assert (line in capfd.readouterr().err.splitlines()) == warns


def test_a_finished_corpus_is_not_made_again(make, tmp_path, capfd):
    make("cat\ndog")
    before = (tmp_path / "corpus" / "manifest.json").stat()
    make("cat\ndog", call={"progress": True})
    assert "is finished already: nothing to do" in capfd.readouterr().err
    assert (tmp_path / "corpus" / "manifest.json").stat() == before
    with pytest.raises(UserError, match="holds a corpus of other text, options or tokenizer"):
        make("cat\ndogs")
    with pytest.raises(UserError, match="give another --output or remove it"):
        make("cat\ndog", seed=1)
    assert not (tmp_path / "corpus.partial").exists()


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("corpus/chapter1", "corpus: exists and is not a corpus"),
        ("corpus.partial/tokenizer/vocab.txt", "corpus.partial holds 'tokenizer'; move it away"),
        ("parent", r"parent/corpus: File exists \(.*\); fix that"),
    ],
)
def test_other_files_in_the_output_are_left_alone(make, tmp_path, file, message):
    (tmp_path / "empty").mkdir()
    make("cat", "empty")  # an empty directory does not matter
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text("precious")
    with pytest.raises(UserError, match=message):
        make("cat", "parent/corpus" if file == "parent" else "corpus")
    assert (tmp_path / file).read_text() == "precious"


def test_work_for_another_text_starts_again(make, tmp_path, capfd):
    text = "cat\n" * 50
    with pytest.raises(UserError, match=r"text.txt:51: byte 1 of the line"):
        make(text + "\udcff\n", call={"batch_characters": 30})
    assert list((tmp_path / "corpus.partial").rglob("*.npz"))
    assert not (tmp_path / "corpus").exists()
    assert documents(make(text, call={"progress": True}), "train") == [[6]] * 50
    assert "belongs to other text or options: starting again" in capfd.readouterr().err
    assert not (tmp_path / "corpus.partial").exists()


def test_two_at_a_time_do_not_write_the_same_corpus(make, tmp_path):
    with (
        locked(tmp_path / "corpus"),
        pytest.raises(UserError, match="corpus is being written by"),
    ):
        make("cat")
    assert not (tmp_path / "corpus.partial").exists()
    assert documents(make("cat"), "train") == [[6]]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "text.txt': it has no text"),
        (" \n\n", {}, "text.txt': it has no text"),
        ("\x07\n", {}, "no token in the text of 'text:"),
        ("\x07\n", {"tokenizer": None}, "training a vocabulary: the texts hold no word"),
        ("cat", {"call": {"limit": 0}}, "limit is 0; it must be at least 1"),
        ("cat", {"workers": 0}, "workers is 0; it must be at least 1"),
        ("cat", {"tokenizer": "/no/such/vocab.txt"}, "/no/such/vocab.txt"),
    ],
)
def test_one_clear_error(make, text, options, message, tmp_path):
    with pytest.raises(UserError) as error:
        make(text, **options)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert not [path for path in tmp_path.iterdir() if "corpus" in path.name]


def test_the_figures_of_three_documents(tmp_path, tiny_vocabulary, monkeypatch):
    (tmp_path / "a.txt").write_text("cat dog\ncat zebra ran\n\ncat\n\n" + "dog\n" * 9)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    options = PrepareOptions(
        source_specs(f"text:{tmp_path}/a.txt"),
        tokenizer=str(tiny_vocabulary),
        validation_fraction=1e-9,
        sentences="lines",
    )
    figures = statistics(options, length=8, workers=1, progress=False)
    # Documents of 5, 1 and 9 tokens fill 1, 1 and 2 examples of 5 tokens each:
    # 15 tokens and 4 * 3 special ones in 4 * 8 positions; no two fit in a row of 8 tokens.
    packed = figures.pop("packed_padding_share")
    assert figures == {
        "documents": 3,
        "validation_documents": 1,
        "sentences": 12,
        "cut_sentences": 0,
        "tokens": 15,
        "unknown_share": 1 / 15,
        "mean_sentence_tokens": 15 / 12,
        "median_sentence_tokens": 1,
        "mean_document_tokens": 5,
        "median_document_tokens": 5,
        "length": 8,
        "padding_share": 1 - 27 / 32,
        "packed_left_out_share": 0,
    }
    assert list((tmp_path / "temporary").iterdir()) == []
    # In rows of 64 tokens, three documents would leave most to padding.
    longer = statistics(options, length=64, workers=1, progress=False)
    assert longer["padding_share"] == 1 - 24 / (3 * 64)
    assert 0 < longer["packed_padding_share"] != packed < 0.1
    assert longer["packed_left_out_share"] < 0.01
    assert statistics(options, limit=1, workers=1, progress=False)["tokens"] == 5
    with pytest.raises(UserError, match="^data.length is 3; it must be at least 8"):
        statistics(options, length=3)
