"""The overlap of host and device in predictions, as the script measures it."""

import re

import pytest


@pytest.mark.slow
def test_the_rates_of_the_whole_and_of_its_halves(script, base_model, monkeypatch, capsys):
    module = script("benchmark_predict")
    monkeypatch.setattr(module, "TEXTS", 20)
    monkeypatch.setattr(module, "ROWS_OF_THE_MODEL", 80)
    module.main(["--model", str(base_model), "--rows", "80", "--rounds", "1"])
    table, shares = capsys.readouterr().out.split("\n\n")
    names = [line.split(" | ")[0].strip("| ") for line in table.splitlines()[2:]]
    assert names == ["whole", "host alone", "model alone"]
    found = [float(share) for share in re.findall(r": (\d\.\d\d) ", shares)]
    assert len(found) == 2
    # The cores do not do more than the slower of the two alone.
    assert 0 < found[0] <= found[1]
