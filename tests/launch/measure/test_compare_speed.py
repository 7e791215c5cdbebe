"""The script that compares speed: turns, ratios, contenders that are not there, both sides tiny."""

import dataclasses
import json
import sys
from pathlib import Path

import pytest

from bert_jax import __main__ as entry

LAUNCH = Path(__file__).parents[3] / "launch" / "measure"

COUNTS = """
import sys
sys.path.insert(0, sys.argv[1])
from timed_rounds import serve
done = []
serve(lambda: done.append(print("noise")))
print(len(done))
"""


def test_a_contender_does_its_steps_on_request(script, tmp_path):
    log = tmp_path / "log"

    contender = script("timed_rounds").Contender(
        "one", [sys.executable, "-c", COUNTS, str(LAUNCH)], log
    )
    assert 0 <= contender.first < 1
    for steps in (3, 2):
        contender.take_turn(steps)
    contender.end()
    assert len(contender.rounds) == 2
    # What it prints is no answer; 1 + 3 + 2 steps were done.
    assert log.read_text().splitlines() == ["noise"] * 6 + ["6"]


def test_a_contender_that_cannot_run(script, tmp_path):
    log = tmp_path / "log"
    contender = script("timed_rounds").Contender(
        "one", [sys.executable, "-c", "import nothing_like_it"], log
    )
    assert contender.first is None
    contender.end()
    assert "No module named 'nothing_like_it'" in log.read_text()


def test_a_step_repeated_is_timed_as_one(script, tmp_path):
    log = tmp_path / "log"
    program = COUNTS.replace('print("noise")', "0").replace("0))\n", "0), repeats=5)\n")
    contender = script("timed_rounds").Contender(
        "one", [sys.executable, "-c", program, str(LAUNCH)], log
    )
    contender.take_turn(2)
    contender.end()
    assert log.read_text() == "15\n"  # 5 × (1 + 2)


def test_a_contender_that_ends_in_its_turn(script, tmp_path):
    log = tmp_path / "log"
    program = COUNTS.replace('done.append(print("noise"))', "done.append(0) or 1 / (2 - len(done))")
    contender = script("timed_rounds").Contender(
        "one", [sys.executable, "-c", program, str(LAUNCH)], log
    )
    assert not contender.take_turn(3)
    contender.end()
    assert "ZeroDivisionError" in log.read_text()


def test_all_get_the_memory_that_the_command_asks_for(script):
    assert script("timed_rounds").MEMORY["GLIBC_TUNABLES"] == entry._TUNED


def test_ratios_are_those_of_each_round(script):
    found = script("timed_rounds").ratios([1.0, 2.0, 4.0], [3.0, 4.0, 4.0])
    assert found == {"median": 2.0, "least": 1.0, "greatest": 3.0}


def test_embedding_needs_a_model(script, tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        script("compare_speed").main(["--output", str(tmp_path), "--works", "embed-float32"])
    assert "works on texts need --model" in capsys.readouterr().err


def test_texts_of_uneven_length(script):
    texts = script("uneven_texts").uneven_texts(500)
    assert texts == script("uneven_texts").uneven_texts(500)
    lengths = sorted(len(text.split()) for text in texts)
    assert 3 <= lengths[0] < 10
    assert 30 < lengths[250] < 50
    assert 200 < lengths[-1] <= 400


def test_the_table_and_the_plot(script, tmp_path):
    compare = script("compare_speed")

    def times(median, ratio):
        return {"median_s": median, "ratio": dict.fromkeys(("median", "least", "greatest"), ratio)}

    found = {"masking": {"sides": {"bert_jax": times(0.01, 1.0), "collator": times(0.25, 25.0)}}}
    assert compare.table(found).splitlines()[2:] == [
        "| masking | bert_jax | 10.0 | 1 |",
        "| masking | transformers' collator | 250.0 | 25.00 (25.00–25.00) |",
    ]
    compare.draw(found, tmp_path / "speed.png")
    assert (tmp_path / "speed.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_both_sides_take_their_turns(script, tmp_path, monkeypatch, capsys, model):
    pytest.importorskip("transformers")
    pytest.importorskip("sentence_transformers")
    compare = script("compare_speed")
    works = ["train-128-bfloat16", "masking", "embed-float32"]
    texts = dataclasses.replace(compare.WORKS["embed-float32"], batch=9, length=32)
    monkeypatch.setitem(compare.WORKS, "embed-float32", texts)
    model.save(tmp_path / "model")
    # Without the one that compiles for a minute.
    step = dataclasses.replace(compare.WORKS[works[0]], peers=("sdpa",))
    monkeypatch.setitem(compare.WORKS, works[0], step)
    words = ["--output", str(tmp_path), "--size", "tiny", "--rounds", "2", "--steps", "1"]
    compare.main([*words, "--works", *works, "--model", str(tmp_path / "model")])
    shown = capsys.readouterr().out
    assert "| masking | transformers' collator |" in shown
    assert "| embed-float32 | sentence-transformers |" in shown
    for name in works[:2]:
        sides = json.loads((tmp_path / f"{name}.json").read_text())["sides"]
        assert {"bert_jax", "collator" if name == "masking" else "sdpa"} <= set(sides)
        assert all(len(times["rounds_s"]) == 2 for times in sides.values())
