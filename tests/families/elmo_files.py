"""A tiny ELMo as AllenNLP's files, and what it computes, by NumPy."""

import json

import h5py
import numpy as np

WIDTH, CELL, CLIP = 6, 7, 0.4
OPTIONS = {
    "lstm": {
        "cell_clip": CLIP,
        "use_skip_connections": True,
        "n_layers": 2,
        "proj_clip": CLIP,
        "projection_dim": WIDTH,
        "dim": CELL,
    },
    "char_cnn": {
        "embedding": {"dim": 3},
        "filters": [[1, 4], [3, 5]],
        "n_highway": 1,
        "n_characters": 262,
        "max_characters_per_token": 50,
        "activation": "relu",
    },
}
SHAPES = {
    "char_embed": (261, 3),
    "CNN/W_cnn_0": (1, 1, 3, 4),
    "CNN/b_cnn_0": (4,),
    "CNN/W_cnn_1": (1, 3, 3, 5),
    "CNN/b_cnn_1": (5,),
    "CNN_high_0/W_carry": (9, 9),
    "CNN_high_0/b_carry": (9,),
    "CNN_high_0/W_transform": (9, 9),
    "CNN_high_0/b_transform": (9,),
    "CNN_proj/W_proj": (9, WIDTH),
    "CNN_proj/b_proj": (WIDTH,),
}
CELL_NAME = "RNN_{}/RNN/MultiRNNCell/Cell{}/LSTMCell"
for direction in (0, 1):
    for layer in (0, 1):
        name = CELL_NAME.format(direction, layer)
        SHAPES |= {
            f"{name}/W_0": (2 * WIDTH, 4 * CELL),
            f"{name}/B": (4 * CELL,),
            f"{name}/W_P_0": (CELL, WIDTH),
        }


def weights():
    draw = np.random.default_rng(0)
    return {name: draw.normal(0, 0.7, shape).astype(np.float32) for name, shape in SHAPES.items()}


def write(directory, prefix="", options=OPTIONS, without=()):
    directory.mkdir(exist_ok=True)
    (directory / f"{prefix}options.json").write_text(json.dumps(options))
    with h5py.File(directory / f"{prefix}weights.hdf5", "w") as file:
        for name, array in weights().items():
            if name not in without:
                file[name] = array
    return directory


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def spelled(word):
    """The ids of a word's characters, 0 to 260; the model's are one more."""
    inside = {"<S>": [256], "</S>": [257]}.get(word) or list(word.encode()[:48])
    return [258, *inside, 259, *[260] * (48 - len(inside))]


def word_vector(tensors, word):
    embedded = tensors["char_embed"][spelled(word)].astype(np.float64)
    found = []
    for number, width in enumerate((1, 3)):
        kernel = tensors[f"CNN/W_cnn_{number}"][0]
        values = [
            np.einsum("we,weo->o", embedded[start : start + width], kernel)
            for start in range(50 - width + 1)
        ]
        found.append(np.maximum(np.max(values, axis=0) + tensors[f"CNN/b_cnn_{number}"], 0))
    x = np.concatenate(found)
    of = {name.split("/")[1]: array for name, array in tensors.items() if "high" in name}
    gate = sigmoid(x @ of["W_carry"] + of["b_carry"])
    x = gate * np.maximum(x @ of["W_transform"] + of["b_transform"], 0) + (1 - gate) * x
    return x @ tensors["CNN_proj/W_proj"] + tensors["CNN_proj/b_proj"]


def read(tensors, direction, layer, inputs, state):
    """The states of an LSTM after each input, in the order in which they are read."""
    names = (f"{CELL_NAME.format(direction, layer)}/{name}" for name in ("W_0", "B", "W_P_0"))
    kernel, bias, projection = (tensors[name].astype(np.float64) for name in names)
    hidden, cell = state
    outputs = []
    for x in inputs:
        i, j, f, o = np.split(np.concatenate([x, hidden]) @ kernel + bias, 4)
        cell = sigmoid(f + 1) * cell + sigmoid(i) * np.tanh(j)
        cell = np.clip(cell, -CLIP, CLIP)
        hidden = np.clip((sigmoid(o) * np.tanh(cell)) @ projection, -CLIP, CLIP)
        outputs.append(hidden)
    return np.array(outputs), (hidden, cell)


def new_states():
    return {
        (direction, layer): (np.zeros(WIDTH), np.zeros(CELL))
        for direction in (0, 1)
        for layer in (0, 1)
    }


def layers(tensors, words, states):
    """[3, T, 2 · WIDTH], the embeddings and both layers, of words with <S> and </S>.

    `states` are those after the sentence before, and become those after this one.
    """
    embedded = np.array([word_vector(tensors, word) for word in words])
    result = [np.concatenate([embedded, embedded], axis=1)]
    halves = [embedded, embedded]
    for layer in (0, 1):
        for direction in (0, 1):
            order = slice(None, None, -1 if direction else 1)
            known = states[direction, layer]
            output, known = read(tensors, direction, layer, halves[direction][order], known)
            states[direction, layer] = known
            halves[direction] = output[order] + (halves[direction] if layer else 0)
        result.append(np.concatenate(halves, axis=1))
    return np.array(result)
