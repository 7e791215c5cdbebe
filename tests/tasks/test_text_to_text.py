"""Training of an encoder-decoder: packed rows mean what padded ones mean; what is reported."""

import dataclasses
import functools
import json

import jax
import numpy as np
import pytest

from bert_jax import cli
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.config import complete_config, load_config
from bert_jax.data.examples import Example
from bert_jax.errors import OptionError, UserError
from bert_jax.experiment import Experiment
from bert_jax.families.family import find_family
from bert_jax.inference.evaluation import write_result
from bert_jax.models.encoder import init_params
from bert_jax.models.execution import Execution
from bert_jax.planning.roofline import flops_of_batch, program_flops
from bert_jax.sharding.mesh import MeshShape, make_mesh
from bert_jax.tasks.base.labelled_options import LabelledOptions
from bert_jax.tasks.base.splits import EvalSet, Splits
from bert_jax.tasks.generate import Generation
from bert_jax.tasks.text_to_text.options import GenerationSection, TextToTextData
from bert_jax.tasks.text_to_text.task import TRAIN, TextToTextTask
from bert_jax.tokenization import load_tokenizer
from tests.runs import records_of

SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "decoder_layers": 1,
    "num_attention_heads": 2,
    "attention_head_size": 8,
    "intermediate_size": 16,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
PAIRS = [
    ("the cat sat", ("a dog ran",)),
    ("one", ("low low low low", "long")),
    ("it was long .", ("sun",)),
    ("a bird", ("the sea",)),
    ("the dog was low and long", ("it was",)),
]
EXAMPLES = [Example(source, targets, str(n), f"f:{n}") for n, (source, targets) in enumerate(PAIRS)]


@pytest.fixture
def make_task(tokenizer):
    def make(
        examples=EXAMPLES,
        length=16,
        best_metric="cross_entropy",
        generation=None,
        fields=SIZES,
        family="t5",
        **keys,
    ):
        family = find_family(family)
        config = family.new_config("tiny", vocab_size=tokenizer.vocab_size, **fields)
        config = dataclasses.replace(config, max_position_embeddings=32, pad_token_id=0)
        description = ModelDescription(config, "text_to_text", family=family)
        execution = Execution(pad_vocab_to_multiple_of=64)
        splits = Splits(examples, examples, [EvalSet("validation", "f", examples)], [])
        return TextToTextTask(
            splits=splits,
            tokenizer=tokenizer,
            description=description,
            execution=execution,
            options=LabelledOptions(best_metric, 2, length, seed=0, epochs=1),
            data=TextToTextData(**keys),
            generation=GenerationSection(**generation or {}),
        )

    return make


def total(task, params):
    """Sums of the loss over an epoch, and their weight."""
    sums, weights = [], []
    step = jax.jit(lambda batch: (task.loss_sums(params, batch), task.loss_weights(batch)))
    for batch in task.train_batches(0, task.batches.batches_per_epoch, host=0, hosts=1):
        of_batch, weight = step(batch)
        sums.append(of_batch[""])
        weights.append(weight[""])
    return jax.tree.map(lambda *values: float(sum(values)), *sums), float(sum(weights))


@pytest.mark.slow
def test_packed_rows_have_the_loss_of_padded_ones(make_task):
    padded, packed = (make_task(packing=packing) for packing in (False, True))
    init = functools.partial(init_params, padded.module)
    params = jax.jit(init)(jax.random.key(0))
    expected, weight = total(padded, params)
    found, packed_weight = total(packed, params)
    assert packed.examples_per_epoch < padded.examples_per_epoch == len(PAIRS)
    # Each target with the two tokens that the template adds.
    assert weight == packed_weight == sum(len(targets[0].split()) + 2 for _, targets in PAIRS)
    assert found == pytest.approx(expected, rel=1e-5)
    mesh = make_mesh(MeshShape(), jax.devices()[:1])
    result = padded.evaluator.evaluate(padded.model(params, mesh), None, with_test=False)
    means = {name: value / weight for name, value in expected.items()}
    perplexity = np.exp(means["cross_entropy"])
    assert result.metrics == pytest.approx({**means, "perplexity": perplexity}, rel=1e-5)


def test_generated_texts_are_scored_and_written(make_task, tmp_path):
    """Only the best generation of a text counts, compared with all its targets."""
    task = make_task(metrics=("exact_match", "chrf"), prefix="the ")
    written = ["a dog ran", "long", "sea", "the sea", "it was"]

    def predict(predictor, examples, name):
        assert name == "validation"
        assert [example.input for example in examples][:2] == ["the the cat sat", "the one"]
        assert predictor.limit == 16
        others = Generation("the dog", [7], -2.0)
        return [[Generation(text, [8, 9], -1.0), others] for text in written]

    evaluator = task.evaluator
    evaluator.check()
    object.__setattr__(evaluator, "_means", lambda examples, model: {"cross_entropy": 1.0})
    model = task.model(None, make_mesh(MeshShape(), jax.devices()[:1]))
    result = evaluator.evaluate(model, predict, with_test=False)
    assert result.metrics["exact_match"] == 80
    assert 0 < result.metrics["chrf"] < 100
    write_result(tmp_path, evaluator, result)
    rows = [json.loads(line) for line in (tmp_path / "validation.jsonl").read_text().splitlines()]
    first = {"text": "a dog ran", "token_ids": [8, 9], "score": -1.0}
    assert rows[0]["generations"][0] == first
    assert (rows[1]["id"], rows[1]["expected"]) == ("1", ["low low low low", "long"])
    assert (tmp_path / "validation.txt").read_text().splitlines() == written
    exact, of_characters = (tmp_path / "validation.report.txt").read_text().splitlines()
    assert exact == "exact_match 80.0000 squad:1.1"
    assert of_characters.startswith(f"chrf {result.metrics['chrf']:.4f} nrefs:var|case:mixed|")


def test_how_texts_are_generated(make_task):
    """The exported model generates like the evaluated one; no longer than its targets."""
    task = make_task(target_length=9, generation={"num_beams": 2, "early_stopping": True})
    expected = {"max_new_tokens": 9, "num_beams": 2, "early_stopping": True, "do_sample": False}
    assert task.description.other == expected | {"length_penalty": 1.0, "num_return_sequences": 1}
    chosen = {"temperature": 0.5, "top_k": 3, "max_new_tokens": 4}
    exported = make_task(generation=chosen).description.other
    assert exported.items() >= {**chosen, "do_sample": True}.items()
    wrong = {"num_beams": 2, "temperature": 0.5}
    message = "generation.num_beams is 2; .* set generation.num_beams=1 or generation.temperature=0"
    with pytest.raises(OptionError, match=message):
        make_task(generation=wrong).evaluator.check()
    with pytest.raises(OptionError, match="generation.seed is -1; it must be at least 0"):
        GenerationSection(seed=-1)
    with pytest.raises(OptionError, match="data.metrics is 'rouge'; known are bleu, chrf"):
        make_task(metrics=("rouge",))


def test_what_is_cut_and_left_out_is_reported(make_task):
    task = make_task(length=8, target_length=5, prefix="the sun : ")
    summary = task.data_summary
    assert (summary.unit, summary.train, summary.classes) == ("pairs", 5, {})
    assert summary.tokens.cut == 2
    assert task.reading_report() == (
        "training targets cut to 5 tokens (data.target_length): 1",
        "training sources with several targets, of which the first is trained on: 1",
    )
    assert task.examples_as_text(1) == "the sun : the cat sat\ta dog ran"


def test_a_target_longer_than_the_model_takes(make_task):
    with pytest.raises(OptionError, match="data.target_length is 40; this model takes at most 32"):
        _ = make_task(target_length=40).rows
    with pytest.raises(OptionError, match="data.target_length is 2; it must be at least 3"):
        make_task(target_length=2)


def test_a_recurrent_decoder_reads_one_pair_a_row(make_task):
    with pytest.raises(OptionError, match="data.packing is True; a recurrent decoder begins with"):
        make_task(family="lstm", fields=RECURRENT)


def test_what_cannot_be_evaluated_is_refused(make_task):
    with pytest.raises(UserError, match="there is no metric 'f1', only accuracy, cross_entropy"):
        make_task(best_metric="f1").evaluator.check()
    unlabelled = [each.labelled(None) for each in EXAMPLES]
    with pytest.raises(OptionError, match="f has no labels to evaluate a training with"):
        make_task(unlabelled).evaluator.check()


RECURRENT = {"hidden_size": 16, "num_hidden_layers": 2, "hidden_dropout_prob": 0.0}


@pytest.mark.parametrize(
    ("family", "fields"),
    [
        ("t5", SIZES),
        ("lstm", RECURRENT),
        ("gru", RECURRENT | {"bidirectional": True, "decoder_attention": "dot"}),
        ("lstm", RECURRENT | {"decoder_attention": "general"}),
        ("lstm", RECURRENT | {"decoder_attention": "additive"}),
    ],
)
@pytest.mark.slow
def test_the_work_of_a_step_is_that_of_its_program(make_task, family, fields):
    """Without packing, of a batch without padding; the backward pass counts twice."""
    examples = [Example("the cat sat on a mat it was", ("a dog ran low and long",))] * 2
    task = make_task(examples, packing=False, target_length=8, family=family, fields=fields)
    task.module = task.description.make_module(Execution())  # no columns of padding
    batch = task.batch_shapes() | {"input_ids": jax.ShapeDtypeStruct((2, 10), np.int32)}
    batch["attention_mask"] = batch["input_ids"]
    params = jax.eval_shape(functools.partial(init_params, task.module), jax.random.key(0))
    program = jax.make_jaxpr(lambda params, batch: task.loss_sums(params, batch))(params, batch)
    expected = 3 * program_flops(program.jaxpr)
    assert flops_of_batch(task.computed_models, batch) == expected


@pytest.mark.slow
def test_a_training_learns_to_reverse(tmp_path, tokenizer):
    """From files, with evaluations in between: packed and padded rows learn the same."""
    words = ["the", "cat", "sat", "dog", "ran", "sun", "sea", "low"]
    random = np.random.default_rng(0)
    rows = [random.choice(words, random.integers(2, 6)).tolist() for _ in range(640)]
    texts = [{"en": " ".join(row), "de": " ".join(reversed(row))} for row in rows]
    for name, chosen in {"train": texts[:600], "dev": texts[600:]}.items():
        lines = (json.dumps({"translation": text}) + "\n" for text in chosen)
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
    tokenizer.save(tmp_path / "tokenizer")
    for packing, epochs in ((True, 12.0), (False, 4.0)):
        config = complete_config(
            {
                "task": "text_to_text",
                "tokenizer": {"path": str(tmp_path / "tokenizer")},
                "model": {"family": "t5", **SIZES, "hidden_size": 32},
                "data": {
                    "directory": str(tmp_path),
                    "train": "train.jsonl",
                    "validation": ("dev.jsonl",),
                    "source_language": "en",
                    "target_language": "de",
                    "length": 32,
                    "packing": packing,
                    "metrics": ["bleu", "chrf"] if packing else [],
                    "best_metric": "bleu" if packing else "",
                },
                "generation": {"num_beams": 2},
                "train": {"global_batch_size": 8, "epochs": epochs},
                "optimizer": {"learning_rate": 5e-3},
            },
            where="test",
        )
        result = Experiment.from_config(config).train(tmp_path / f"run_{packing}")
        assert result["accuracy"] > 0.4
        assert result["perplexity"] == pytest.approx(np.exp(result["cross_entropy"]))
        assert ("bleu" in result) == packing
        run = tmp_path / f"run_{packing}"
        assert len((run / "predictions" / "validation.txt").read_text().splitlines()) == 40
        if packing:
            logged = [row["bleu"] for row in records_of(run) if row["split"] == "validation"]
            assert result["bleu"] == pytest.approx(max(logged), rel=1e-6)  # export=best


@pytest.mark.parametrize("family", ["marian", "gru"])
@pytest.mark.slow
def test_the_config_of_translation_trains_two_steps(tmp_path, tokenizer, family):
    tokenizer.save(tmp_path / "tokenizer")
    for name in ("train", "val"):
        for language, column in (("en", 0), ("de", 1)):
            lines = [(source, targets[0])[column] for source, targets in PAIRS * 8]
            (tmp_path / f"{name}.{language}").write_text("\n".join(lines) + "\n")
    arguments = f"train={tmp_path}/train.en,validation={tmp_path}/val.en,source=en,target=de"
    arguments += f",tokenizer={tmp_path}/tokenizer,size=tiny,steps=2,family={family}"
    keys = {"data.length": "16", "train.global_batch_size": "2", "train.average_checkpoints": "1"}
    config = load_config(f"configs/translation.py:{arguments}", [*keys.items()])
    result = Experiment.from_config(config).train(tmp_path / "run")
    assert result["cross_entropy"] < 8
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()
    model = tmp_path / "run" / "model"
    assert Experiment.from_config(config).evaluate(model=model) == pytest.approx(result, rel=1e-4)


def test_prepare_trains_a_vocabulary_of_both_sides(tmp_path, capsys):
    lines = {"en": "a cat\nthe dog ran\na bird sang", "de": "eine Katze\nder Hund lief\nein Vogel"}
    for language, text in lines.items():
        (tmp_path / f"train.{language}").write_text(text + "\n")
    train = tmp_path / "train.en"
    config = f"translation:train={train},validation={train},source=en,target=de,vocab_size=29"
    command = ["prepare", "--config", config, "--output", str(tmp_path / "vocabulary")]
    assert cli.main(command) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result == {"tokenizer": str(tmp_path / "vocabulary"), "vocab_size": 29}
    tokenizer = load_tokenizer(tmp_path / "vocabulary")
    for text in "eine Katze ran", "the Vogel lief":
        (encoding,) = tokenizer.encode_batch([text])
        assert tokenizer.decode(encoding.ids) == text
    assert cli.main(command) == 2
    assert "has files; give a new directory as --output" in capsys.readouterr().err
    assert cli.main([*command, "--limit", "3"]) == 2
    assert "--limit is for a corpus; this task needs a tokenizer" in capsys.readouterr().err


def test_a_prefix_is_no_part_of_the_exported_model():
    note = "the exported model does not add data.prefix: begin each text with 'sum: '"
    assert TRAIN.export_notes(TextToTextData(prefix="sum: ")) == (note,)
    assert TRAIN.export_notes(TextToTextData()) == ()
