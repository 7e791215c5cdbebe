"""The picture of the recall."""

from matplotlib.axes import Axes

from bert_jax.metrics.recall_curve import draw_recall


def test_the_curve_ends_with_the_longest_list(monkeypatch, tmp_path):
    drawn = []
    monkeypatch.setattr(Axes, "plot", lambda self, *curve, **style: drawn.append(curve))
    run = {"q": {"a": 4.0, "x": 3.0, "b": 2.0, "y": 1.0}, "none": {}}
    draw_recall(tmp_path / "r.png", "r", {"q": {"a": 1, "b": 1}}, run, relevant_from=1)
    assert drawn == [([1, 2, 3, 4], [0.5, 0.5, 1.0, 1.0])]
