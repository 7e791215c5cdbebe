"""ELMo against PyTorch's convolutions and LSTM with projection."""

import copy

import numpy as np
import pytest
import torch

import bert_jax
from tests.families import elmo_files

pytestmark = pytest.mark.slow


def torch_words(tensors, words):
    """The vector of each word, [T, WIDTH]."""
    ids = torch.tensor([elmo_files.spelled(word) for word in words])
    spelled = torch.nn.functional.embedding(ids, tensors["char_embed"]).transpose(1, 2)
    found = []
    for number in (0, 1):
        kernel = tensors[f"CNN/W_cnn_{number}"][0].permute(2, 1, 0)  # out, in, width
        values = torch.conv1d(spelled, kernel, tensors[f"CNN/b_cnn_{number}"])
        found.append(torch.relu(values.amax(dim=2)))
    x = torch.cat(found, dim=1)
    carry, transform = (
        x @ tensors[f"CNN_high_0/W_{name}"] + tensors[f"CNN_high_0/b_{name}"]
        for name in ("carry", "transform")
    )
    x = torch.lerp(x, torch.relu(transform), torch.sigmoid(carry))
    return x @ tensors["CNN_proj/W_proj"] + tensors["CNN_proj/b_proj"]


def torch_lstm(tensors, direction, layer):
    """PyTorch's order of gates is i, f, g, o, and nothing is added to the forget gate."""
    width, size = elmo_files.WIDTH, elmo_files.CELL
    lstm = torch.nn.LSTM(width, size, proj_size=width)
    name = elmo_files.CELL_NAME.format(direction, layer)

    def in_order(array):
        i, g, f, o = array.split(size, dim=-1)
        return torch.cat([i, f, g, o], dim=-1)

    kernel, bias = in_order(tensors[f"{name}/W_0"]), in_order(tensors[f"{name}/B"]).clone()
    bias[size : 2 * size] += 1
    lstm.load_state_dict(
        {
            "weight_ih_l0": kernel[:width].T,
            "weight_hh_l0": kernel[width:].T,
            "bias_ih_l0": bias,
            "bias_hh_l0": torch.zeros(4 * size),
            "weight_hr_l0": tensors[f"{name}/W_P_0"].T,
        }
    )
    return lstm


def test_all_layers_equal_those_of_pytorch(tmp_path):
    options = copy.deepcopy(elmo_files.OPTIONS)
    del options["lstm"]["cell_clip"], options["lstm"]["proj_clip"]  # PyTorch has no clips
    model = bert_jax.load(elmo_files.write(tmp_path, options=options))
    tensors = {name: torch.tensor(array) for name, array in elmo_files.weights().items()}
    texts = ["the cat sat on a mat .", "naïve", "x y"]
    for text, states in zip(texts, model.hidden_states(texts, layers=(0, 1, 2)), strict=True):
        with torch.no_grad():
            embedded = torch_words(tensors, ["<S>", *text.split(), "</S>"])
            halves, expected = [embedded, embedded], [torch.cat([embedded, embedded], dim=1)]
            for layer in (0, 1):
                for direction in (0, 1):
                    inputs = halves[direction].flip(0) if direction else halves[direction]
                    output, _ = torch_lstm(tensors, direction, layer)(inputs)
                    output = output.flip(0) if direction else output
                    halves[direction] = output + (halves[direction] if layer else 0)
                expected.append(torch.cat(halves, dim=1))
        np.testing.assert_allclose(states.states, torch.stack(expected).numpy(), atol=1e-5)
