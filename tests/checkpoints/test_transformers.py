"""An exported model in the hands of Hugging Face's `transformers`."""

import jax.numpy as jnp
import numpy as np
import pytest

import bert_jax

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TEXTS = ["the cats sat on the mat .", "A bird sang", "it was [MASK] and warm ."]
SECONDS = ["it was long .", "the boys walked to the sea and it was low .", "down"]


@pytest.fixture(params=["gelu", "gelu_new", "relu"])
def exported(request, tmp_path, model_config, model_params, tokenizer):
    import dataclasses

    from bert_jax.checkpoints import model_directory

    config = dataclasses.replace(model_config, hidden_act=request.param)
    model_directory.save(
        tmp_path, config, model_params, tokenizer, architecture="BertForPreTraining"
    )
    return tmp_path


def test_every_tensor_finds_its_place_and_the_logits_agree(exported):
    theirs, information = transformers.BertForPreTraining.from_pretrained(
        exported, output_loading_info=True
    )
    assert not information["missing_keys"]
    assert not information["unexpected_keys"]
    assert not information["mismatched_keys"]
    theirs.eval()
    tokens = transformers.AutoTokenizer.from_pretrained(exported)(
        TEXTS, SECONDS, padding=True, return_tensors="pt"
    )
    with torch.no_grad():
        expected = theirs(**tokens)
    ours = bert_jax.load(exported)
    found = ours.module.apply(
        {"params": ours.params},
        *(
            jnp.asarray(tokens[n].numpy())
            for n in ("input_ids", "token_type_ids", "attention_mask")
        ),
    )
    real = tokens["attention_mask"].numpy().astype(bool)
    np.testing.assert_allclose(
        np.asarray(found.prediction_logits)[real],
        expected.prediction_logits.numpy()[real],
        atol=1e-4,
    )
    np.testing.assert_allclose(
        found.seq_relationship_logits, expected.seq_relationship_logits.numpy(), atol=1e-4
    )


def test_the_tokenizer_gives_the_same_ids(exported, tokenizer):
    theirs = transformers.AutoTokenizer.from_pretrained(exported)
    expected = theirs(TEXTS, SECONDS)
    found = tokenizer.encode_batch(TEXTS, SECONDS)
    assert [encoding.ids for encoding in found] == expected["input_ids"]
    assert [encoding.type_ids for encoding in found] == expected["token_type_ids"]
    assert theirs.mask_token_id == tokenizer.special_ids.mask
    assert len(theirs) == tokenizer.vocab_size


def test_auto_classes_know_the_model(exported):
    config = transformers.AutoConfig.from_pretrained(exported)
    assert config.model_type == "bert"
    assert config.architectures == ["BertForPreTraining"]
    model = transformers.AutoModelForMaskedLM.from_pretrained(exported)
    assert model.config.hidden_act == config.hidden_act


def test_what_transformers_saves_is_loaded(exported, tmp_path):
    theirs = transformers.BertForPreTraining.from_pretrained(exported)
    theirs.save_pretrained(tmp_path / "saved")
    transformers.AutoTokenizer.from_pretrained(exported).save_pretrained(tmp_path / "saved")
    before, after = bert_jax.load(exported), bert_jax.load(tmp_path / "saved")
    assert after.config == before.config
    ids = jnp.array([[2, 6, 10, 4, 3]])
    one, other = (
        model.module.apply({"params": model.params}, ids).prediction_logits
        for model in (before, after)
    )
    assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
    assert after.tokenizer.fingerprint() == before.tokenizer.fingerprint()
