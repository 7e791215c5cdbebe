"""Generation by a loaded model, and `predict --task generate`."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

import bert_jax
from bert_jax import cli
from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.errors import OptionError, UserError
from bert_jax.families.family import find_family
from bert_jax.models.execution import Execution
from bert_jax.tasks.base.generation_options import GenerationOptions
from bert_jax.tasks.generate import GeneratePredictOptions, Generation, GenerationPredictor
from bert_jax.tokenization.sentencepiece_training import train_t5
from bert_jax.tokenization.training import train_gpt2
from tests.random_params import random_params

LINES = ["a cat sat on a mat", "the dog ran to the cat", "two birds flew over the house"] * 4


def directory_of(path, name, head, tokenizer, **fields):
    family = find_family(name)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = family.new_config("tiny", vocab_size=tokenizer.vocab_size, **sizes, **fields)
    other = {"eos_token_id": tokenizer.special_ids.eos, "bos_token_id": tokenizer.special_ids.bos}
    description = ModelDescription(config, head, family=family, other=other)
    params = random_params(description.make_module(Execution()), scale=0.5)
    model_directory.save(path, description, params, tokenizer)
    return path


@pytest.fixture(scope="module")
def t5(tmp_path_factory):
    path = tmp_path_factory.mktemp("t5") / "model"
    tokenizer = train_t5(LINES, vocab_size=128)
    fields = {"intermediate_size": 20, "attention_head_size": 6, "decoder_layers": 1}
    return directory_of(path, "t5", "text_to_text", tokenizer, **fields)


@pytest.fixture(scope="module")
def gpt(tmp_path_factory):
    path = tmp_path_factory.mktemp("gpt") / "model"
    tokenizer = train_gpt2(LINES, vocab_size=280)
    return directory_of(path, "gpt2", "causal_lm", tokenizer, max_position_embeddings=24)


@pytest.mark.slow
def test_generations_of_texts_do_not_depend_on_their_batch(t5):
    model = bert_jax.load(t5)
    options = {"max_new_tokens": 6, "num_beams": 3, "num_return_sequences": 2}
    texts = ["a cat", "the dog ran to the house over the mat", "birds"]
    together = model.generate(texts, **options)
    assert [len(generations) for generations in together] == [2, 2, 2]
    for text, expected in zip(texts, together, strict=True):
        (alone,) = model.generate([text], batch_size=1, **options)
        assert [each.text for each in alone] == [each.text for each in expected]
        np.testing.assert_allclose(
            [each.score for each in alone], [each.score for each in expected], atol=1e-5
        )
        best, second = expected
        assert best.score >= second.score
        assert best.text == model.tokenizer.decode(best.token_ids)
        assert len(best.token_ids) <= 6


@pytest.mark.slow
def test_samples_depend_on_seed_and_text(gpt):
    model = bert_jax.load(gpt)
    options = {"max_new_tokens": 5, "temperature": 1.5}
    first = model.generate(["a cat", "the dog", "a cat"], seed=1, **options)
    # Two equal prompts have different samples; the order of others does not matter.
    assert first[0] != first[2]
    assert model.generate(["the dog", "a cat"], seed=1, **options)[::-1] == first[:2]
    assert model.generate(["a cat"], seed=2, **options) != first[:1]
    several = model.generate(["a cat"], num_return_sequences=3, **options)[0]
    assert len({each.text for each in several}) == 3
    best = [each.score for each in several]
    assert best == sorted(best, reverse=True)
    # "" is the beginning of a text.
    greedy, _ = model.generate(["a cat", ""], max_new_tokens=5)
    for only_the_best in ({"top_k": 1}, {"top_p": 1e-9}):
        (same,) = model.generate(["a cat"], **only_the_best, **options)
        assert same[0].token_ids == greedy[0].token_ids


@pytest.mark.slow
def test_files_say_how_to_generate(t5, tmp_path):
    """As in transformers; arguments have precedence. The file is written back as it was."""
    fields = {"num_beams": 2, "max_length": 4, "eos_token_id": 1, "pad_token_id": 0}
    fields |= {"decoder_start_token_id": 0, "suppress_tokens": [5]}
    copy = tmp_path / "model"
    bert_jax.load(t5).save(copy)
    (copy / "generation_config.json").write_text(json.dumps(fields))
    model = bert_jax.load(copy)
    by_file = model.generate(["a cat"])
    plain = bert_jax.load(t5)
    options = GenerationOptions(num_beams=2, max_new_tokens=3)
    assert len(by_file[0][0].token_ids) <= 3
    assert 5 not in by_file[0][0].token_ids
    if 5 not in plain.generate(["a cat"], options=options)[0][0].token_ids:
        assert by_file == plain.generate(["a cat"], options=options)
    model.save(tmp_path / "again")
    assert json.loads((tmp_path / "again" / "generation_config.json").read_text()) == fields


def test_what_is_refused(t5, gpt):
    model = bert_jax.load(gpt)
    with pytest.raises(UserError) as error:
        model.generate([" the" * 23], max_new_tokens=4)
    assert str(error.value).endswith(
        "the prompt has 23 tokens; 24 positions less 4 new ones leave 20: shorten it, or lower "
        "max_new_tokens"
    )
    with pytest.raises(UserError, match="has 9 tokens, max_length is 8: shorten it, or raise max"):
        model.generate([" the" * 9], max_new_tokens=4, max_length=8)
    with pytest.raises(OptionError, match="max_new_tokens is 24; it must be at most 23"):
        model.generate(["a"], max_new_tokens=24)
    with pytest.raises(OptionError, match="samples are drawn without beams"):
        model.generate(["a"], num_beams=2, temperature=1.0)
    with pytest.raises(UserError, match="this GPT2LMHeadModel does not fill masks"):
        model.fill_mask(["a"])
    with pytest.raises(ValueError, match="not both"):
        model.generate(["a"], num_beams=2, options=GenerationOptions())
    module = bert_jax.load(t5).module
    with pytest.raises(ValueError, match="the decoder has no tokens; give decoder_input_ids"):
        module.apply({"params": bert_jax.load(t5).params}, np.int32([[3, 1]]))
    with pytest.raises(UserError, match="one string"):
        bert_jax.load(t5).generate("a cat")


def test_a_text_of_white_space_becomes_an_empty_text(t5, gpt):
    for path, is_empty in ((t5, True), (gpt, False)):
        predictor = GenerationPredictor(
            bert_jax.load(path), GeneratePredictOptions(batch_size=2, max_new_tokens=2)
        )
        output = np.int32([[5, 6]]), np.int32([2]), np.float32([-1])
        (encoded,) = predictor.encode([" \t"])
        (made,) = predictor.decode(" \t", encoded, [output])
        expected = Generation("", [], 0.0) if is_empty else made
        assert (made, made.token_ids) == (expected, [] if is_empty else [5, 6])


@pytest.fixture
def with_file(tmp_path):
    """Loads a copy of a model with a `generation_config.json`."""

    def make(path, **fields):
        copy = tmp_path / "model"
        shutil.copytree(path, copy, dirs_exist_ok=True)
        (copy / "generation_config.json").write_text(json.dumps(fields))
        return bert_jax.load(copy)

    return make


@pytest.mark.parametrize(
    "fields", [{}, {"max_length": None}, {"max_length": 20, "max_new_tokens": 3}]
)
def test_a_short_gpt_generates_by_default(gpt, with_file, fields):
    """It has 24 positions."""
    assert with_file(gpt, **fields).generate([]) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("bos_token_id", 100000),
        ("eos_token_id", [1, 100000]),
        ("pad_token_id", 100000),
        ("decoder_start_token_id", 100000),
        ("forced_bos_token_id", 100000),
        ("forced_eos_token_id", 100000),
    ],
)
@pytest.mark.parametrize("name", ["t5", "gpt"])
def test_tokens_of_the_file_that_the_model_lacks(name, key, value, request, with_file):
    model = with_file(request.getfixturevalue(name), **{key: value})
    most = model.config.vocab_size - 1
    message = rf"generation_config.json: {key} is 100000; it must be at most {most}$"
    with pytest.raises(OptionError, match=message):
        model.generate([])


PROGRAM = """
import json, sys
import bert_jax
from bert_jax.sharding.mesh import MeshShape, make_mesh
path, *sizes = sys.argv[1:]
mesh = make_mesh(MeshShape(*map(int, sizes)))
model = bert_jax.load(path, mesh=mesh)
texts = ["a cat", "the dog ran", "birds", "two birds flew over"]
made = [
    *model.generate(texts, max_new_tokens=6),
    *model.generate(texts, max_new_tokens=6, num_beams=3),
    *model.generate(texts, max_new_tokens=6, temperature=1.0, seed=3, num_return_sequences=2),
]
print(json.dumps([[each.token_ids, each.score] for every in made for each in every]))
"""


@pytest.mark.slow
@pytest.mark.usefixtures("processes_without_torch")
@pytest.mark.parametrize("name", ["t5", "gpt"])
def test_eight_devices_generate_like_one(name, request):
    path = request.getfixturevalue(name)

    def made(*sizes, devices=8):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(path), *map(str, sizes)],
            env=os.environ | {"JAX_NUM_CPU_DEVICES": str(devices)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        ids, scores = zip(*json.loads(done.stdout.splitlines()[-1]), strict=True)
        return list(ids), list(scores)

    expected = made(1, 1, 1, devices=1)
    assert len(expected[0]) == 16
    for sizes in ((8, 1, 1), (2, 2, 2)):
        actual = made(*sizes)
        assert actual[0] == expected[0], sizes
        np.testing.assert_allclose(actual[1], expected[1], atol=1e-5)


@pytest.mark.slow
def test_predict_a_file(t5, tmp_path):
    """One object for each text, with its generations; the model generates without `--task`."""
    (tmp_path / "texts.txt").write_text("a cat\n\nbirds\n")
    output = tmp_path / "output.jsonl"
    command = ["predict", "--model", str(t5), "--input", str(tmp_path / "texts.txt")]
    command += ["--output", str(output), "--max-new-tokens", "4", "--num-beams", "2"]
    assert cli.main([*command, "--num-return-sequences", "2"]) == 0
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    model = bert_jax.load(t5)
    expected = model.generate(
        ["a cat", "birds"], max_new_tokens=4, num_beams=2, num_return_sequences=2
    )
    assert rows.pop(1)["generations"] == [{"text": "", "token_ids": [], "score": 0.0}]
    actual = [[each["text"] for each in row["generations"]] for row in rows]
    assert actual == [[each.text for each in every] for every in expected]
    assert [*rows[0]["generations"][0]] == ["text", "token_ids", "score"]


def test_an_encoder_is_told_what_it_can_do(base_model):
    with pytest.raises(UserError) as error:
        bert_jax.load(base_model, task="masked_lm").generate(["a cat"])
    assert str(error.value) == (
        "this BertForMaskedLM does not generate text; give the directory of a model that does, "
        "with the head causal_lm or text_to_text; an encoder fills masks: use fill_mask"
    )
