"""Shows the result of a pre-training run: filled masks, and accuracies beside baselines.

python launch/show_quickstart.py RUN
"""

import json
import sys
from pathlib import Path

import bert_jax

SENTENCES = (
    "return a copy of the [MASK] with all characters converted to lowercase.",
    "if the file does not [MASK], an error is raised.",
    "the default value of the argument is [MASK].",
)


def main(run: Path) -> None:
    """Prints three sentences with their best fillings, then the table of accuracies."""
    model = bert_jax.load(run / "model")
    for sentence in SENTENCES:
        fillings = model.fill_mask(sentence, top_k=3)
        words = ", ".join(f"{filling.token} ({filling.score:.0%})" for filling in fillings)
        print(f"{sentence}\n    [MASK] = {words}")
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
