"""Shows the result of a pre-training run: a filled mask, and accuracies beside baselines.

python launch/show_quickstart.py RUN
"""

import json
import sys
from pathlib import Path

import bert_jax

# The small model completes it whatever the seed and the version of Python, whose text it learns.
SENTENCE = "[MASK] no argument is given, the default is used."


def main(run: Path) -> None:
    """Prints a sentence with its five best words, then the table of accuracies."""
    model = bert_jax.load(run / "model")
    words = ", ".join(f"{word.token} ({word.score:.0%})" for word in model.fill_mask(SENTENCE))
    print(f"{SENTENCE}\n    [MASK] = {words}")
    result = json.loads((run / "result.json").read_text())
    print(f"\n{'validation documents':24}{'BERT':>12}{'baseline':>12}")
    rows = (
        ("masked words", "mlm_accuracy", "most_frequent", "always the most frequent token"),
        ("next sentence", "nsp_accuracy", "majority", "always the more frequent label"),
    )
    for title, metric, baseline, meaning in rows:
        reached, trivial = result[metric], result[f"{metric}_{baseline}"]
        print(f"{title:24}{reached:12.1%}{trivial:12.1%}  ({meaning})")
    print(f"\ncurves: {run / 'curves.png'}\nmodel:  {run / 'model'}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
