"""Classifiers of causal models: their last token, and the loss of the next tokens."""

import dataclasses
import json

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.errors import OptionError
from bert_jax.families.family import find_family
from bert_jax.models.encoder import RequestedOutputs, init_params
from bert_jax.models.encoder_with_head import ModelInputs
from bert_jax.models.execution import Execution
from bert_jax.models.head import find_head
from bert_jax.tasks.classification.language_model import check_language_model, with_next_tokens
from bert_jax.tokenization.training import train_gpt2

CONFIG = find_family("gpt2").new_config(
    "tiny", vocab_size=20, hidden_size=8, max_position_embeddings=8, num_hidden_layers=1
)
IDS = np.random.default_rng(0).integers(0, 20, (3, 6)).astype(np.int32)
LENGTHS = np.array([6, 3, 1])
MASK = (np.arange(6) < LENGTHS[:, None]).astype(np.int32)


@pytest.mark.slow
def test_a_classifier_reads_the_last_token_that_is_not_padding_and_scores_next_tokens():
    module = find_head("classification").make(CONFIG)
    params = init_params(module, jax.random.key(0))
    assert list(params["classifier"]) == ["kernel"]  # GPT's has no bias
    inputs = ModelInputs(IDS, attention_mask=MASK)
    outputs = jax.jit(lambda params: with_next_tokens(module, params, inputs, None))(params)

    language_model = find_head("causal_lm").make(CONFIG)
    logits, encoded = language_model.apply(
        {"params": {"bert": params["bert"]}}, inputs, encoder_outputs=RequestedOutputs()
    )
    last = encoded.last_hidden_state[np.arange(3), LENGTHS - 1]  # BD
    np.testing.assert_allclose(outputs.logits, last @ params["classifier"]["kernel"], atol=1e-6)

    losses = -np.take_along_axis(jax.nn.log_softmax(logits[:, :-1]), IDS[:, 1:, None], 2)[..., 0]
    expected = [losses[0].mean(), losses[1, :2].mean(), 0.0]  # a text of a token has no next one
    np.testing.assert_allclose(outputs.next_tokens, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"is_causal": False}, "each token of the model sees the next one.*set it to 0"),
        ({"tie_word_embeddings": False}, "a classifier has no table of its own"),
    ],
)
def test_models_without_a_loss_of_next_tokens_are_refused(changes, message):
    config = dataclasses.replace(CONFIG, **changes)
    check_language_model(config, 0.0)
    with pytest.raises(OptionError, match=message):
        check_language_model(config, 0.5)


@pytest.mark.slow
def test_gpt_learns_labels_and_transformers_reads_them(train, sentences, write_table, tmp_path):
    """Also rows of a batch with padding, which GPT's tokenizer has no token for."""
    examples = sentences(160)
    tokenizer = train_gpt2([text for text, _ in examples], vocab_size=300)
    config = find_family("gpt2").new_config(
        "tiny", vocab_size=tokenizer.vocab_size, max_position_embeddings=32, hidden_size=32
    )
    description = ModelDescription(config, "causal_lm", family=find_family("gpt2"))
    params = init_params(description.make_module(Execution()), jax.random.key(0))
    model_directory.save(tmp_path / "gpt", description, params, tokenizer)
    result, workdir = train(
        "classification", base=tmp_path / "gpt", optimizer__learning_rate=1e-2,
        data__train=write_table("train.tsv", [("text", "label"), *examples]),
        data__language_model_weight=0.5, train__epochs=3.0, train__eval_every=100,
    )  # fmt: skip
    assert result["accuracy"] > 0.9 > result["accuracy_majority"]
    logged = [json.loads(line) for line in (workdir / "metrics.jsonl").open()]
    name = "next_token_cross_entropy"
    entropies = [line[name] for line in logged if name in line]
    assert entropies[-1] < 1.0 < np.log(300)

    model = bert_jax.load(workdir)
    texts = ["the dog was long .", "the sea was warm and long ."]
    labels = model.classify(texts)
    assert [answer.label for answer in labels] == ["animal", "thing"]
    model.save(tmp_path / "saved")
    torch, transformers = map(pytest.importorskip, ("torch", "transformers"))
    peer = transformers.GPT2ForSequenceClassification.from_pretrained(tmp_path / "saved")
    assert peer.config.pad_token_id == tokenizer.special_ids.eos
    rows = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    width = max(map(len, rows))
    padding = [peer.config.pad_token_id] * width
    ids = torch.tensor([(row + padding)[:width] for row in rows])
    probabilities = peer(ids, attention_mask=ids != padding[0]).logits.softmax(-1)
    expected = [list(answer.probabilities.values()) for answer in labels]
    np.testing.assert_allclose(probabilities.detach(), expected, atol=1e-4)
