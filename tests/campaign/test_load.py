"""Each part of the load campaign at a small size."""

import json

import pytest

from tests.campaign import load


@pytest.mark.slow
@pytest.mark.parametrize(("part", "size"), [("threads", 1), ("checkpoints", 6)])
def test_a_small_load(part, size, tmp_path, capsys):
    assert load.main([part, "--size", str(size), "--directory", str(tmp_path)]) == 0
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert figures["findings"] == []
    assert figures["seconds"] > 0
    if part == "checkpoints":
        assert figures["kept"][-1] == size
