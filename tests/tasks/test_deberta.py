"""Fine-tuning a DeBERTa with the files of a published one: every task, and beside PyTorch."""

import json

import numpy as np
import pytest

import bert_jax
from tests.tokenization.folders import trained
from tests.training.trajectory import by_name, metrics_of_bert_jax, torch_adamw

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SPECIALS = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3}
PIECES = {"pad_piece": "[PAD]", "bos_piece": "[CLS]", "eos_piece": "[SEP]", "unk_piece": "[UNK]"}
# Texts exceed the buckets and the distances.
FIELDS = {
    "vocab_size": 100,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 40,
    "layer_norm_eps": 1e-7,
    "relative_attention": True,
    "position_biased_input": False,
    "pos_att_type": "p2c|c2p",
    "share_att_key": True,
    "position_buckets": 4,
    "norm_rel_ebd": "layer_norm",
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "max_relative_positions": 6,
}
STEPS = 50


@pytest.fixture(scope="module")
def deberta(tmp_path_factory, sentences):
    """Random weights as of version 3: the names neither of a class nor of a head, `spm.model`."""
    directory = tmp_path_factory.mktemp("deberta")
    torch.manual_seed(0)
    model = transformers.DebertaV2Model(transformers.DebertaV2Config(**FIELDS))
    with (
        torch.no_grad()
    ):  # otherwise all texts have nearly the same vector, and gradients are noise
        for parameter in model.parameters():
            parameter.add_(0.15 * torch.randn_like(parameter))
    model.save_pretrained(directory)
    file = directory / "config.json"
    fields = json.loads(file.read_text())
    del fields["architectures"], fields["legacy"]
    file.write_text(json.dumps(fields))
    texts = [text for text, _ in sentences(60)]
    pieces = trained(texts, vocab_size=60, hard_vocab_limit=False, **SPECIALS, **PIECES)
    (directory / "spm.model").write_bytes(pieces)
    return directory


def rows_of(task, sentences):
    """Rows whose label is in the text."""
    for number, (text, label) in enumerate(sentences(40)):
        words = text.split()
        match task:
            case "classification":
                yield {"text": text, "text_pair": "the sea", "label": label}
            case "multiple_choice":
                choices = ["animal", "thing"]
                yield {"prompt": text, "choices": choices, "label": choices.index(label)}
            case "question_answering":
                answer = {"text": words[1], "answer_start": 4}
                yield {"id": str(number), "question": "which", "context": text, "answers": [answer]}
            case "similarity":
                yield {"text": text, "text_pair": "the dog", "label": float(label == "animal")}
            case "tagging":
                yield {"tokens": words, "tags": ["O", "B-A", *["O"] * (len(words) - 2)]}


TASKS = ("classification", "multiple_choice", "question_answering", "similarity", "tagging")


@pytest.mark.parametrize("task", TASKS)
def test_a_fine_tuned_model_predicts_the_same_from_its_files(
    task, deberta, sentences, experiment, write_rows, tmp_path
):
    rows = list(rows_of(task, sentences))
    keys = {"data__question_length": 8} if task == "question_answering" else {}
    file = write_rows("rows.jsonl", rows)
    done = experiment(
        task, base=deberta, data__train=file, data__validation=(str(file),), train__epochs=3, **keys
    ).train(tmp_path / "run")
    assert done is not None
    saved = tmp_path / "run" / "model"
    config = json.loads((saved / "config.json").read_text())
    assert (config["model_type"], config["pos_att_type"]) == ("deberta-v2", "c2p|p2c")
    assert (saved / "spm.model").read_bytes() == (deberta / "spm.model").read_bytes()
    model = bert_jax.load(saved, task=task)
    assert model.report.complete
    first, again = (model.embed([rows[0].get("text", "the cat was low")]) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    model_class = getattr(transformers, config["architectures"][0])
    _, information = model_class.from_pretrained(saved, output_loading_info=True)
    assert not information["missing_keys"]
    assert not information["unexpected_keys"]


def test_classification_learns_step_by_step_as_in_pytorch(
    deberta, sentences, experiment, write_rows, tmp_path
):
    file = write_rows("rows.jsonl", rows_of("classification", sentences))
    training = experiment(
        "classification",
        base=deberta,
        data__train=file,
        data__validation=(str(file),),  # none of the rows, which fill all batches
        train__steps=STEPS,
        optimizer__learning_rate=1e-3,
        precision="float32",
        optimizer__bias_correction=True,
        optimizer__warmup_steps=5,
        optimizer__warmup_ratio=0.0,
        optimizer__decay_from="warmup",
        optimizer__weight_decay=0.1,
    )
    torch.manual_seed(1)
    reference = transformers.DebertaV2ForSequenceClassification.from_pretrained(
        deberta, num_labels=2
    ).train()
    with torch.no_grad():
        reference.classifier.weight.normal_()
    initial = tmp_path / "initial"
    reference.save_pretrained(initial)
    options = training.sections.optimizer
    batches = list(training.task.train_batches(0, STEPS, host=0, hosts=1))
    ours = metrics_of_bert_jax(training.task, batches, options, initial)

    optimizer = torch_adamw(reference, options)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, 5, STEPS)
    steps = []
    for batch in batches:
        names = ("input_ids", "attention_mask", "labels")
        inputs = {name: torch.from_numpy(batch[name].astype(np.int64)) for name in names}
        output = reference(**inputs)
        optimizer.zero_grad()
        output.loss.backward()
        torch.nn.utils.clip_grad_norm_(reference.parameters(), options.max_grad_norm)
        optimizer.step()
        schedule.step()
        steps.append({"loss": output.loss.item()})
    theirs = by_name(steps)
    np.testing.assert_allclose(ours["loss"], theirs["loss"], atol=1e-4)
    assert theirs["loss"][-5:].mean() < 0.5 * theirs["loss"][0]
