"""An evaluation that continues from the outputs of an earlier call."""

import contextlib

import numpy as np
import pytest

from bert_jax.inference.engine import predict_examples
from bert_jax.inference.output_cache import OutputCache, cached_beside
from bert_jax.tasks.base.predictor import BatchOptions
from bert_jax.tasks.classification.predict import LabelPredictor

REQUEST = {"model": "a", "devices": 1}
TEXTS = [f"the cat was {'very ' * (n % 9)}old ." for n in range(100)]


@pytest.fixture
def predictor(make_model):
    """Counts the batches that it computes; the outputs are a tree of two arrays."""

    class Counting(LabelPredictor):
        computed = 0

        def compute(self, batch):
            Counting.computed += 1
            outputs = super().compute(batch)
            return {"b": outputs, "a": (outputs.sum(axis=-1),)}

        def decode(self, example, encoded, outputs):
            assert outputs[0]["a"][0].shape == ()
            return super().decode(example, encoded, [each["b"] for each in outputs])

    model = make_model("classification")
    return Counting(model, BatchOptions(batch_size=4))


@pytest.mark.slow
def test_kept_outputs_are_not_computed_again(predictor, tmp_path, monkeypatch):
    monkeypatch.setattr("bert_jax.files.journal.RECORD_SECONDS", 0.0)
    whole = list(predict_examples(predictor, TEXTS))
    batches = type(predictor).computed
    assert batches > 7

    def predict(stop):
        """Stops after that many batches; returns the predictions and how many it computed."""
        type(predictor).computed, predictions = 0, []
        with cached_beside(tmp_path / "out", lambda: REQUEST) as journal:
            outputs = OutputCache(journal, "validation")

            def advance(texts):
                if outputs.count >= stop:
                    raise KeyboardInterrupt

            predictions += predict_examples(predictor, TEXTS, cache=outputs, advance=advance)
        return predictions, type(predictor).computed

    for stop in (1, 4, 7):
        with pytest.raises(KeyboardInterrupt):
            predict(stop)
    predictions, computed = predict(99)
    assert computed == 1 + batches - 7  # and the first, which tells the structure of the outputs
    assert predictions == whole
    assert not (tmp_path / "out.partial").exists()


def keep(output, count=3, request=REQUEST, name="dev.a"):
    """Keeps the outputs of some batches, and stops; returns the outputs."""
    with (
        contextlib.suppress(KeyboardInterrupt),
        cached_beside(output, lambda: request) as journal,
    ):
        outputs = OutputCache(journal, name)
        for number in range(outputs.count, count):
            outputs.add([np.full((2, 3), number), np.array([True]), np.float32(7)])
        raise KeyboardInterrupt
    return outputs


def test_arrays_come_back_as_they_were(tmp_path, capsys):
    keep(tmp_path / "out", 3)
    keep(tmp_path / "out", 12)  # of these, nine are new
    keep(tmp_path / "out", 1, name="dev.b")
    line = "out.partial keeps the outputs of 13 batches; the same command continues after them"
    assert line in capsys.readouterr().err
    with cached_beside(tmp_path / "out", lambda: REQUEST) as journal:
        outputs = OutputCache(journal, "dev.a")
        for number in range(12):
            full, flag, scalar = outputs.read()
            np.testing.assert_array_equal(full, np.full((2, 3), number))
            assert (flag.tolist(), flag.dtype, scalar.shape, scalar) == ([True], bool, (), 7)
        assert outputs.read() is None
        of_another = OutputCache(journal, "dev.b")
        assert (of_another.read() is None, of_another.read()) == (False, None)
    keep(tmp_path / "none", 0)
    assert not (tmp_path / "none.partial").exists()
