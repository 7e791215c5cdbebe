"""LSTM and GRU against PyTorch's modules, which load the tensors of the files as they are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import nn

import bert_jax
from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.checkpoints.parameters import to_tensors
from bert_jax.families.family import find_family
from bert_jax.models.decoding import DecoderCache
from bert_jax.models.execution import Execution
from bert_jax.models.packed_rows import EncoderInputs
from tests.random_params import random_params

pytestmark = pytest.mark.slow

WIDTH, LAYERS, EMBEDDED = 16, 2, 12
LENGTHS = [7, 3, 5, 1]
IDS = np.random.default_rng(0).integers(1, 40, (len(LENGTHS), max(LENGTHS))).astype(np.int32)
MASK = (np.arange(max(LENGTHS)) < np.array(LENGTHS)[:, None]).astype(np.int32)


def description_of(kind, head, **fields):
    sizes = {"vocab_size": 40, "hidden_size": WIDTH, "num_hidden_layers": LAYERS}
    family = find_family(kind)
    config = family.new_config("tiny", **sizes, embedding_size=EMBEDDED, **fields)
    return ModelDescription(config, head, family=family, add_pooling_layer=False)


class OfPyTorch(nn.Module):
    """The modules that the names of the tensors stand for."""

    def __init__(self, kind, *, bidirectional):
        super().__init__()
        width = WIDTH // 2 if bidirectional else WIDTH
        self.word_embeddings = nn.Embedding(40, EMBEDDED)
        self.embedding_projection = nn.Linear(EMBEDDED, WIDTH)
        layers = {"lstm": nn.LSTM, "gru": nn.GRU}[kind](
            WIDTH, width, LAYERS, batch_first=True, bidirectional=bidirectional
        )
        self.add_module(kind, layers)
        self.layers = [layers]  # not registered a second time

    def forward(self, ids):
        embedded = self.embedding_projection(WIDTH**0.5 * self.word_embeddings(ids))
        packed = nn.utils.rnn.pack_padded_sequence(
            embedded, LENGTHS, batch_first=True, enforce_sorted=False
        )
        hidden, state = self.layers[0](packed)
        return nn.utils.rnn.pad_packed_sequence(hidden, batch_first=True)[0], state


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_states_and_gradients_are_those_of_pytorch(kind, bidirectional, tokenizer, tmp_path):
    """Two layers over ragged rows: every hidden state, the last states, and all gradients."""
    description = description_of(kind, "encoder", bidirectional=bidirectional)
    module = description.make_module(Execution())
    params = random_params(module, scale=0.3, all_differ=True)
    model_directory.save(tmp_path / "model", description, params, tokenizer)
    reference = OfPyTorch(kind, bidirectional=bidirectional)
    tensors = load_file(tmp_path / "model" / "model.safetensors")
    reference.load_state_dict({name: torch.tensor(array) for name, array in tensors.items()})

    cache = DecoderCache.empty(description.config, Execution(), len(IDS), 0)
    factors = np.random.default_rng(1).normal(size=(*IDS.shape, WIDTH)).astype(np.float32)

    @jax.jit
    def computed(params):
        inputs = EncoderInputs(IDS, attention_mask=MASK, position_ids=IDS)
        output = module.apply({"params": params}, inputs, True, cache=cache, method="encode")
        return (output.last_hidden_state * factors).sum(), output

    (_, output), gradients = jax.value_and_grad(computed, has_aux=True)(params)
    hidden, state = reference(torch.tensor(IDS))
    np.testing.assert_allclose(output.last_hidden_state, hidden.detach(), atol=1e-5)
    states = dict(zip(("hidden", "cell"), state if kind == "lstm" else (state,), strict=False))
    assert states.keys() == output.cache.tokens.state.keys()
    for name, expected in states.items():
        by_layer = expected.detach().reshape(LAYERS, 1 + bidirectional, len(IDS), -1)
        joined = np.concatenate([by_layer[:, half] for half in range(1 + bidirectional)], axis=-1)
        np.testing.assert_allclose(output.cache.tokens.state[name], joined, atol=1e-5)

    (hidden * torch.tensor(factors)).sum().backward()
    names = description.family.huggingface
    of_pytorch = dict(reference.named_parameters())
    ours = to_tensors(gradients, names, module)
    assert {name.removeprefix("model.") for name in ours} == of_pytorch.keys()
    for name, gradient in ours.items():
        expected = of_pytorch[name.removeprefix("model.")].grad
        np.testing.assert_allclose(gradient, expected, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("tied", [False, True])
def test_logits_are_those_of_linear_layers_of_pytorch(tied, tokenizer, tmp_path):
    description = description_of("lstm", "causal_lm", tie_word_embeddings=tied)
    params = random_params(description.make_module(Execution()), scale=0.3, all_differ=True)
    model_directory.save(tmp_path / "model", description, params, tokenizer)
    tensors = load_file(tmp_path / "model" / "model.safetensors")
    tensors = {name: torch.tensor(array) for name, array in tensors.items()}
    reference = OfPyTorch("lstm", bidirectional=False)
    reference.load_state_dict(
        {n.removeprefix("model."): t for n, t in tensors.items() if n.startswith("model.")}
    )
    hidden, _ = reference(torch.tensor(IDS))
    table = tensors["model.word_embeddings.weight" if tied else "lm_head.decoder.weight"]
    if tied:
        weight, bias = (tensors[f"lm_head.projection.{name}"] for name in ("weight", "bias"))
        hidden = nn.functional.linear(hidden, weight, bias)
    expected = nn.functional.linear(hidden, table).detach().numpy()
    model = bert_jax.load(tmp_path / "model")
    logits = model.module.apply({"params": model.params}, jnp.array(IDS), attention_mask=MASK)
    np.testing.assert_allclose(logits[MASK == 1], expected[MASK == 1], atol=1e-5)
