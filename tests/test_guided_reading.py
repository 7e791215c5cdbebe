"""docs/guided_reading.md: its excerpts are the source, their shapes are true, its code runs."""

import ast
import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.axes import Axes

import bert_jax
from bert_jax.data.pretraining.masking import MaskedPositions, replace_tokens
from bert_jax.data.pretraining.options import PretrainingOptions
from bert_jax.models.config import EncoderConfig
from bert_jax.models.execution import Execution
from bert_jax.models.heads.classification import ClassificationModel
from bert_jax.models.heads.pretraining import PreTrainingModel
from bert_jax.tasks.base.task import classification_sums

ROOT = Path(__file__).parents[1]
BLOCKS = re.findall(
    r"```python\n(.*?)```", (ROOT / "docs" / "guided_reading.md").read_text(), re.DOTALL
)
# An excerpt begins with its file, as "# models/attention.py".
EXCERPTS = [block for block in BLOCKS if re.match(r"# [\w/]+\.py\n", block)]
EXAMPLES = [block for block in BLOCKS if block not in EXCERPTS]

SIZES = {"B": 3, "T": 9, "S": 9, "N": 4, "H": 10, "D": 40, "F": 12, "V": 20, "P": 6, "C": 7}


def source_file(excerpt: str) -> Path:
    return ROOT / "bert_jax" / excerpt.partition("\n")[0].removeprefix("# ")


def code_of(line: str) -> str:
    """A line without its indentation and the comment behind it."""
    return re.sub(r"(\S)  # .*", r"\1", line.strip())


def numbered_lines(excerpt: str) -> dict[int, str]:
    """The lines of an excerpt by their numbers in the source, where "..." leaves lines out."""
    source = [code_of(line) for line in source_file(excerpt).read_text().splitlines()]
    numbered: dict[int, str] = {}
    start = 0
    for part in re.split(r"(?m)^ *\.\.\.\n", excerpt.partition("\n")[2]):
        lines = part.splitlines()
        codes = [code_of(line) for line in lines]
        last = len(source) - len(codes)
        found = (at for at in range(start, last + 1) if source[at : at + len(codes)] == codes)
        start = next(found, -1)
        assert start >= 0, f"{source_file(excerpt)} does not have these lines:\n{part}"
        numbered |= dict(enumerate(lines, start + 1))
        start += len(lines)
    return numbered


def stated_shapes() -> dict[tuple[str, int], tuple[int, ...]]:
    """The last shape in the comment of each line of the excerpts, by file and line."""
    return {
        (str(source_file(excerpt)), number): tuple(SIZES.get(axis) or int(axis) for axis in axes)
        for excerpt in EXCERPTS
        for number, line in numbered_lines(excerpt).items()
        for axes in [re.findall(r"\w+", shape) for shape in re.findall(r"  # .*(\[.*\])", line)]
    }


def result_of(statement: ast.stmt, variables: dict[str, Any], returned: Any) -> Any:
    """What a statement has assigned to its variable, or returned."""
    if isinstance(statement, ast.Return):
        return returned
    target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
    return variables.get(getattr(target, "id", ""))


def computed_shapes(
    files: set[str], compute: Callable[[], Any]
) -> dict[tuple[str, int], set[tuple[int, ...]]]:
    """The shapes that the statements of some files give their results, by file and last line."""
    statements = {
        file: {
            line: statement
            for statement in ast.walk(ast.parse(Path(file).read_text()))
            if isinstance(statement, ast.Assign | ast.AugAssign | ast.Return)
            for line in range(statement.lineno, (statement.end_lineno or 0) + 1)
        }
        for file in files
    }
    shapes: dict[tuple[str, int], set[tuple[int, ...]]] = {}

    def trace_frame(frame: Any, event: str, argument: Any) -> Any:
        file, current = frame.f_code.co_filename, None
        if file not in statements:
            return None

        def trace(frame: Any, event: str, argument: Any) -> Any:
            nonlocal current
            entered = statements[file].get(frame.f_lineno)
            if current is not None and (event == "return" or entered is not current):
                value = result_of(current, frame.f_locals, argument)
                line = (file, current.end_lineno)
                shapes.setdefault(line, set()).add(getattr(value, "shape", ()))
            current = entered
            return trace

        return trace

    before = sys.gettrace()
    sys.settrace(trace_frame)
    try:
        compute()
    finally:
        sys.settrace(before)
    return shapes


def compute_everything() -> None:
    """What the excerpts compute, for a BERT with a different size of each dimension."""
    size = SIZES
    config = EncoderConfig(
        vocab_size=size["V"],
        hidden_size=size["D"],
        num_hidden_layers=1,
        num_attention_heads=size["N"],
        intermediate_size=size["F"],
        num_labels=size["C"],
    )
    execution = Execution(attention="definition")
    ids = jnp.ones((size["B"], size["T"]), jnp.int32)
    places = jnp.zeros((size["B"], size["P"]), jnp.int32)
    pretraining = PreTrainingModel(config, execution)
    words, pair = jax.eval_shape(
        lambda: pretraining.init_with_output(jax.random.key(0), ids, masked_lm_positions=places)[0]
    )
    for logits in (words, pair):
        labels = jnp.zeros(logits.shape[:-1], jnp.int32)
        classification_sums(jnp.zeros(logits.shape), labels, jnp.ones(labels.shape))
    classifier = ClassificationModel(config, execution)
    jax.eval_shape(lambda: classifier.init_with_output(jax.random.key(0), ids)[0])
    positions = np.asarray(places, np.int64)
    masked = MaskedPositions(positions, np.ones(positions.shape, bool), positions)
    keys = np.arange(size["B"], dtype=np.uint64)
    options = PretrainingOptions(length=size["T"])
    replace_tokens(np.asarray(ids), masked, keys, options, 4, np.arange(5, size["V"]))


@pytest.mark.parametrize("excerpt", EXCERPTS, ids=lambda excerpt: source_file(excerpt).stem)
def test_an_excerpt_is_the_source(excerpt):
    assert numbered_lines(excerpt)


def test_the_shapes_of_the_excerpts_are_computed():
    stated = stated_shapes()
    assert len(stated) >= 25
    computed = computed_shapes({file for file, _ in stated}, compute_everything)
    wrong = {line: (shape, computed.get(line)) for line, shape in stated.items()}
    wrong = {line: both for line, both in wrong.items() if both[0] not in (both[1] or ())}
    assert not wrong


@pytest.mark.slow
def test_the_page_runs(make_model, tmp_path, monkeypatch, capsys):
    make_model("pretraining").save(tmp_path / "runs/quickstart/model")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for block in EXAMPLES:
        exec(block, namespace)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("ids                [B, T]           [1, ")
    assert printed[4] == "pair logits        [B, 2]           [1, 2]"
    assert printed[5:7] == ["[1. 1. 1. 1.]", "True"]
    assert "variance 64, divided by √H 1.0" in printed
    assert any(line.startswith("attention/key/kernel (") for line in printed)
    monkeypatch.syspath_prepend(ROOT / "docs")
    forward_pass = importlib.import_module("forward_pass")
    texts = ("the [MASK] sat.", "it was warm.")
    figure = forward_pass.draw(bert_jax.load("runs/quickstart/model"), *texts)
    titles = [axes.get_title() for axes in figure.findobj(Axes)]
    assert sum("head" in title for title in titles) == 2 * 2
    assert titles.count("+ input, LayerNorm") == titles.count("feed-forward, [T, D]") == 2
