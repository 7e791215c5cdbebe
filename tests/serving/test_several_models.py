"""Routes of tasks that need a model of their own, and several models at once."""

import numpy as np
import pytest

import bert_jax

TEXTS = ["the cat sat on a mat", "a dog", "the sea was long"]
CHOICES = ["sat on a mat", "was long", "ran"]


@pytest.fixture(scope="module")
def models(make_model, model, encoder, base_t5):
    return {
        "tiny": encoder,
        "mlm": model,
        "cross": make_model("classification", num_labels=1),
        "choices": make_model("multiple_choice"),
        "t5": bert_jax.load(base_t5),
    }


@pytest.fixture(scope="module")
def ask(serve, models):
    """Posts JSON, and returns the JSON of a good answer."""
    client = serve(models, max_length=16)

    def post(path, **body):
        answer = client.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    return post


def test_weights_of_words(ask, models):
    for made, expected in zip(
        ask("/embed_sparse", inputs=TEXTS), models["mlm"].sparse_vectors(TEXTS), strict=True
    ):
        assert [each["index"] for each in made] == expected.ids.tolist()
        values = [each["value"] for each in made]
        np.testing.assert_allclose(values, expected.weights, atol=1e-6)


def test_a_cross_encoder_ranks(ask, models):
    made = ask("/rerank", model="cross", query=TEXTS[0], texts=TEXTS[1:], return_text=True)
    expected = models["cross"].rank(TEXTS[0], TEXTS[1:])
    assert [(each["index"], each["text"]) for each in made] == [
        (match.index, match.text) for match in expected
    ]
    scores = [match.score for match in expected]
    assert [each["score"] for each in made] == pytest.approx(scores, abs=1e-6)
    raw = ask("/rerank", model="cross", query=TEXTS[0], texts=TEXTS[1:], raw_scores=True)
    logits = [np.log(score / (1 - score)) for score in scores]
    assert [each["score"] for each in raw] == pytest.approx(logits, abs=1e-5)


def test_a_choice(ask, models):
    record = {"prompt": "the cat", "choices": CHOICES}
    (made,) = ask("/choose", records=[record])["predictions"]
    expected = models["choices"].choose("the cat", CHOICES)
    assert (made["index"], made["choice"]) == (expected.index, expected.choice)
    assert made["probabilities"] == pytest.approx(expected.probabilities, abs=1e-6)


@pytest.mark.slow
def test_a_generated_text(ask, models):
    made = ask("/generate", records=TEXTS, options={"max_new_tokens": 4})["predictions"]
    expected = models["t5"].generate(TEXTS, max_new_tokens=4, max_length=16)
    for record, generations in zip(made, expected, strict=True):
        assert [each["token_ids"] for each in record["generations"]] == [
            each.token_ids for each in generations
        ]
        scores = [each.score for each in generations]
        assert [each["score"] for each in record["generations"]] == pytest.approx(scores, abs=1e-6)


@pytest.mark.parametrize("name", ["tiny", "mlm"])
def test_attentions_of_each_of_several_models(ask, models, name):
    made = ask("/attentions", records=TEXTS, model=name, options={"layers": [-1]})
    for record, maps in zip(made["predictions"], models[name].attentions(TEXTS, [-1]), strict=True):
        assert record["tokens"] == maps.tokens
        np.testing.assert_allclose(record["attentions"], maps.weights, atol=1e-6)
