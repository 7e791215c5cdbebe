import pytest

from bert_jax.tokenization.cleaning import TextCleaner, has_accents


@pytest.mark.parametrize(
    ("lowercase", "keep_accents", "cleaned"),
    [
        (False, True, 'Él "ΣΟΣ" ½'),
        (True, True, 'él "σοσ" ½'),  # letter by letter: no final ς
        (False, False, 'El "ΣΟΣ" 1⁄2'),
        (True, False, 'el "σοσ" 1⁄2'),
    ],
)
def test_clean(lowercase, keep_accents, cleaned):
    cleaner = TextCleaner(lowercase=lowercase, keep_accents=keep_accents)

    assert cleaner.clean("Él ``ΣΟΣ'' ½") == cleaned


def test_origins_point_into_the_text():
    cleaner = TextCleaner(lowercase=True, keep_accents=False)

    cleaned, origins = cleaner.clean_with_origins("``É½e\u0301x")

    assert cleaned == '"e1⁄2ex'
    assert origins == [0, 2, 3, 3, 3, 4, 6]


def test_origins_of_plain_text():
    cleaner = TextCleaner(lowercase=True, keep_accents=True)

    cleaned, origins = cleaner.clean_with_origins("A b")

    assert cleaned == "a b"
    assert list(origins) == [0, 1, 2]


def test_has_accents():
    assert has_accents(["▁the", "é"])
    assert not has_accents(["▁the", "▁", "ß", "[CLS]", "ı"])
