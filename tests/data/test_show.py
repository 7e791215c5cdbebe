"""Training examples as a person reads them."""

from bert_jax.data.pretraining.batches import as_text
from bert_jax.data.pretraining.packing import PackedBatches


def test_examples_as_text_by_eye(tiny_batches, tokenizer):
    batch = {name: array[::2] for name, array in tiny_batches(seed=7).batch(0, 3).items()}
    assert as_text(batch, tokenizer, "nsp") == (
        "example 0: 17 tokens (9 + 8), 3 of padding, 3 masked\n"
        "  [CLS] the song boy←was long and [MASK]←low [MASK]←. [SEP]\n"
        "  the dog ran to the tree . [SEP]\n"
        "  label 1: the second sentence is random\n"
        "\n"
        "example 1: 20 tokens (7 + 13), 0 of padding, 3 masked\n"
        "  [CLS] the sun went [MASK]←up . [SEP]\n"
        "  the sea was low and the boy ##s ran down←down [MASK]←to it [SEP]\n"
        "  label 0: the second sentence is the next one"
    )
    full = tiny_batches(seed=2, objective="none", masking="span").batch(0, 1)
    assert as_text(full, tokenizer, "none") == (
        "example 0: 16 tokens (16 + 0), 4 of padding, 2 masked\n"
        "  [CLS] a [MASK]←bird [MASK]←sang in the tree . the song was long and low . [SEP]"
    )


def test_packed_rows_as_text_by_eye(tiny_batches, tokenizer, monkeypatch):
    monkeypatch.setattr("bert_jax.data.pretraining.packing.GROUP_ROWS", 64)
    options = {"length": 28, "max_predictions": 6, "short_probability": 0.9, "seed": 17}
    batch = PackedBatches(tiny_batches(**options)).batch(0, 1)
    assert as_text(batch, tokenizer, "nsp") == (
        "row 0: 28 tokens, 0 of padding, examples: 2\n"
        "\n"
        "row 0, example 0: 12 tokens (7 + 5), 0 of padding, 2 masked\n"
        "  [CLS] the sun went up . [SEP]\n"
        "  [MASK]←it [MASK]←was warm . [SEP]\n"
        "  label 1: the second sentence is random\n"
        "\n"
        "row 0, example 1: 16 tokens (9 + 7), 0 of padding, 2 masked\n"
        "  [CLS] a←a bird sang in [MASK]←the tree . [SEP]\n"
        "  the dog ##s ran on . [SEP]\n"
        "  label 1: the second sentence is random"
    )
