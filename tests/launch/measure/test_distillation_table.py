"""The script under launch/ that measures distillation: its students, its table."""

from pathlib import Path

from bert_jax.config import load_config
from bert_jax.distillation.options import DistillationOptions
from bert_jax.options import from_keys

CONFIGS = Path(__file__).parents[3]


def test_every_student_is_a_valid_config(script):
    table, rows = script("distillation_table"), script("finetuning_table")
    found = []
    for variant in table.students(Path("MODEL"), Path("TEACHER"), [3, 2]):
        words = rows.command(rows.ROWS["trec"], "DATA", "MADE", str(variant.model), "1", "RUN")
        options = [word.removeprefix("--config.") for word in words if "--config." in word]
        overrides = [tuple(option.split("=", 1)) for option in (*options, *variant.keys)]
        config = load_config(str(CONFIGS / words[2]), overrides)
        distillation = from_keys(DistillationOptions, config.distillation)
        found.append((config.init_from, config.model.keep_layers, distillation.teacher))
    assert found == [
        ("TEACHER", 3, "TEACHER"),
        ("MODEL", 3, ""),
        ("TEACHER", 2, "TEACHER"),
        ("MODEL", 2, ""),
    ]


def test_the_table_shows_teacher_students_and_speed(script, tmp_path, monkeypatch, capsys):
    table = script("distillation_table")

    def run_seed(key, seed, options):
        accuracy = {"teacher": 0.9, "2-layers-teacher": 0.8, "2-layers-alone": 0.7}
        times = {"teacher_ms_per_text": 3.0, "student_ms_per_text": 1.5}
        return {"scores": {"accuracy": accuracy[options.output.name] + seed / 100, **times}}

    monkeypatch.setattr(table, "run_seed", run_seed)
    places = [f"--{name}={tmp_path}" for name in ("data", "model", "output")]
    table.main([*places, "--rows", "trec", "--layers", "2", "--seeds", "0", "2"])
    assert (
        "| TREC | accuracy | 90.0 | 3.00 | 81.0 ± 1.4 | 1.50 | 71.0 ± 1.4 |\n"
        in capsys.readouterr().out
    )
    assert "bert-jax train --config" in (tmp_path / "table.md").read_text()
