"""Labels at the first tokens of words, in rows and in batches."""

import hypothesis
import hypothesis.strategies as st
import numpy as np

from bert_jax.data.examples import Example, Sentence
from bert_jax.metrics.entities import spans
from bert_jax.tasks.tagging.tags import TagSet
from bert_jax.tasks.tagging.task import tagged_rows

LABELS = ("O", "B-PER", "I-PER")
TAGS = TagSet(LABELS, "iob2")


def sentence(words, tags):
    return Example(Sentence(tuple(words)), tuple(tags), "0", "f:1")


def test_a_batch_by_hand(tokenizer):
    """[CLS] the play ##er ##s ran [SEP] and [CLS] cat [SEP]; the row between them is filling."""
    rows = tagged_rows(
        [
            sentence(["the", "players", "ran"], ["O", "I-PER", "O"]),
            sentence(["cat"], ["B-PER"]),
        ],
        TAGS,
        tokenizer,
        16,
    )
    assert rows.sequences.lengths.tolist() == [7, 3]
    batch = rows.make(np.array([0, -1, 1]), 8)
    assert batch["input_ids"].shape == (3, 8)
    assert batch["attention_mask"].sum(axis=1).tolist() == [7, 0, 3]
    assert batch["word_positions"].tolist() == [[1, 2, 5, 0, 0, 0], [0] * 6, [1, *[0] * 5]]
    assert batch["labels"].tolist() == [[0, 1, 0, -1, -1, -1], [-1] * 6, [1, *[-1] * 5]]
    assert batch["weights"].tolist() == [[1, 1, 1, 0, 0, 0], [0] * 6, [1, *[0] * 5]]
    assert batch["label_before"].tolist() == batch["label_after"].tolist() == [-1, -1, -1]
    assert {value.dtype for key, value in batch.items() if key != "weights"} == {np.dtype("int32")}
    assert batch["weights"].dtype == np.float32


def test_windows_know_the_labels_beside_them(tokenizer):
    words = ["the", "cat", "sat", "on", "a", "mat", "up"]
    tags = ["O", "B-PER", "I-PER", "I-PER", "O", "O", "B-PER"]
    rows = tagged_rows([sentence(words, tags)], TAGS, tokenizer, 6)
    batch = rows.make(np.arange(3), 6)
    # the cat sat | on a | mat up, see the test of the windows
    assert batch["labels"].tolist() == [[0, 1, 2, -1], [2, 0, -1, -1], [0, 1, -1, -1]]
    assert batch["label_before"].tolist() == [-1, 2, 0]
    assert batch["label_after"].tolist() == [2, 0, -1]


def test_of_a_word_without_tokens_nothing_is_learned(tokenizer):
    """The entity begins with its first word that has some."""
    rows = tagged_rows(
        [sentence(["\u200b", "cat", "dog"], ["B-PER", "I-PER", "I-PER"])], TAGS, tokenizer, 16
    )
    assert rows.make(np.arange(1), 4)["labels"].tolist() == [[1, 2]]


def test_balanced_weights_have_the_mean_1(tokenizer):
    examples = [sentence(["the", "cat", "sat", "."], ["O", "B-PER", "O", "O"])]
    weights = tagged_rows(examples, TAGS, tokenizer, 16, balanced=True).make(np.arange(1), 6)
    np.testing.assert_allclose(weights["weights"], [[2 / 3, 2, 2 / 3, 2 / 3]], rtol=1e-6)


@hypothesis.given(
    st.lists(
        st.tuples(
            st.sampled_from(["cat", "walked", "players", "zzz", "play" + "er" * 30]),
            st.sampled_from(LABELS),
        ),
        min_size=1,
        max_size=120,
    ),
    st.sampled_from([3, 8, 32]),
)
@hypothesis.settings(max_examples=40)
def test_no_entity_is_lost_however_short_the_rows(tokenizer, tagged, length):
    words, tags = zip(*tagged, strict=True)
    rows = tagged_rows([sentence(words, tags)], TAGS, tokenizer, length)
    batch = rows.make(np.arange(len(rows.sequences.lengths)), length)
    learned = [LABELS[label] for label in batch["labels"].ravel() if label >= 0]
    assert spans(learned) == spans(tags)
    assert int(batch["weights"].sum()) == len(words)
