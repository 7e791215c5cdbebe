"""Generation beside transformers: the same sequences and scores, for 500 random texts a family."""

import numpy as np
import pytest

from bert_jax.checkpoints.model_directory import load_description, load_params
from bert_jax.generation.next_token import TokenRules
from bert_jax.generation.options import SearchOptions
from bert_jax.models.execution import Execution
from bert_jax.tasks.base.model_decoder import generate_after_prompts, generate_from_texts

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

CASES, BATCH, LENGTH, NEW = 500, 125, 7, 12
MARIAN = {
    "vocab_size": 40,
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 20,
    "decoder_ffn_dim": 20,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
    "decoder_start_token_id": 0,
    "eos_token_id": 1,
    "forced_eos_token_id": None,
}
T5 = {"vocab_size": 40, "d_model": 16, "d_kv": 6, "d_ff": 20, "num_layers": 2, "num_heads": 2}
GPT = {"vocab_size": 40, "n_positions": 32, "n_embd": 16, "n_layer": 2, "n_head": 2}
MODELS = {
    "marian": ("Marian", "MarianMTModel", MARIAN),
    "bart": ("Bart", "BartForConditionalGeneration", MARIAN),
    "t5": ("T5", "T5ForConditionalGeneration", T5),
    "gpt2": ("GPT2", "GPT2LMHeadModel", GPT | {"eos_token_id": 1, "bos_token_id": 1}),
    "gpt": ("OpenAIGPT", "OpenAIGPTLMHeadModel", GPT),
}
# tests/generation/test_parity_search.py has the other options.
SEARCHES = ({}, {"num_beams": 4, "num_return_sequences": 2})


@pytest.fixture(params=MODELS, scope="module")
def models(request, tmp_path_factory):
    """The model of transformers, and ours: module, parameters, whether it is causal."""
    prefix, class_name, fields = MODELS[request.param]
    torch.manual_seed(1)
    config = getattr(transformers, f"{prefix}Config")(**fields)
    model = getattr(transformers, class_name)(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not (prefix == "Marian" and "embed_positions" in name):
                parameter.add_(torch.randn_like(parameter) * 0.3)
    directory = tmp_path_factory.mktemp("model")
    model.save_pretrained(directory)
    description = load_description(directory)
    module = description.make_module(Execution())
    params, _ = load_params(directory, description, module)
    return model, module, params, description.head == "causal_lm"


@pytest.mark.parametrize("search", SEARCHES)
def test_sequences_and_scores(models, search):
    model, module, params, is_causal = models
    generator = np.random.default_rng(3)
    rules = TokenRules(eos_token_ids=(1,), pad_token_id=0)
    options = SearchOptions(max_new_tokens=NEW, **search)
    for _ in range(CASES // BATCH):
        ids = generator.integers(2, 40, (BATCH, LENGTH)).astype(np.int32)
        lengths = generator.integers(1, LENGTH + 1, BATCH)
        mask = (np.arange(LENGTH) < lengths[:, None]).astype(np.int32)
        batch = {"input_ids": ids * mask, "attention_mask": mask}
        if is_causal:
            made = generate_after_prompts(
                params, batch, module=module, rules=rules, options=options
            )
            columns = (np.arange(LENGTH) + lengths[:, None]) % LENGTH  # padding comes first
            given = {key: np.take_along_axis(value, columns, 1) for key, value in batch.items()}
            assert given["attention_mask"][:, -1].all()
        else:
            made = generate_from_texts(
                params, batch, module=module, start=0, rules=rules, options=options
            )
            given = batch
        expected = model.generate(
            **{key: torch.from_numpy(value.astype(np.int64)) for key, value in given.items()},
            max_new_tokens=NEW,
            max_length=None,
            do_sample=False,
            eos_token_id=1,
            pad_token_id=0,
            output_scores=True,
            return_dict_in_generate=True,
            **({} if is_causal else {"decoder_start_token_id": 0}),
            **search,
        )
        skipped = LENGTH if is_causal else 1
        sequences = expected.sequences[:, skipped:].numpy()
        actual = np.asarray(made.token_ids).reshape(-1, NEW)
        padded = np.zeros_like(actual)
        padded[:, : sequences.shape[1]] = sequences
        # transformers pads beams with the end token if padding has the id 0.
        padded[(padded == 1).cumsum(axis=1) - (padded == 1) > 0] = 0
        different = (actual != padded).any(axis=1)
        if "num_beams" in search:
            scores = expected.sequences_scores.numpy()
            close = np.isclose(np.asarray(made.scores).ravel(), scores, atol=1e-4)
            assert close.all()  # two sequences of equal scores may change places
        assert different.mean() <= 0.004, actual[different]
