"""Run → model directory: the model that a run trains, or another model within the run."""

from pathlib import Path

from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.checkpoints.hub import check_not_of_run
from bert_jax.config import Sections
from bert_jax.errors import OptionError
from bert_jax.experiment.workdir import TOKENIZER, description_of, restore_params, run_sections
from bert_jax.files.paths import MODEL
from bert_jax.models.config import ENCODER_SCOPE
from bert_jax.models.surgery import without_padding
from bert_jax.tasks.base.train_spec import TrainedPart


def export(workdir: Path, output: Path, *, which: str = "", part: str = "") -> int:
    """Writes a checkpoint of a run as a model directory; the data are not needed.

    With several hosts all call it.

    Args:
        workdir: directory of the run.
        output: the model directory.
        which: "latest", "best" or a step; "": the run's `train.export`, or the mean that its
            `train.average_checkpoints` sets.
        part: one of the `parts` of the run's task; "": the model that it trains.

    Returns:
        The exported step.

    Raises:
        UserError: the run has no such checkpoint or part, or the directory cannot be written.
    """
    if output != workdir / MODEL:
        check_not_of_run(output)
    run, description = run_sections(workdir), description_of(workdir)
    average = 1 if which else run.train.average_checkpoints
    which, module = which or run.train.export, None
    tokenizer = description.family.load_tokenizer(workdir / TOKENIZER, config=description.config)
    if part:
        chosen = _part(run, description, part)
        module = chosen.module
    params, step = restore_params(workdir, description, which, module=module, average=average)
    if part:
        own, *others = (
            (part.description, without_padding(part.params(params), part.description.config))
            for part in (chosen, *chosen.sides.values())
        )
        sides = {
            side: (*other, tokenizer) for side, other in zip(chosen.sides, others, strict=True)
        }
        model_directory.save(output, *own, tokenizer, sides)
        return step
    # A bare encoder is trained with a loss on top.
    if description.is_bare:
        params = params.pop(ENCODER_SCOPE) | params
    model_directory.save(output, description, params, tokenizer)
    return step


def export_notes(workdir: Path) -> tuple[str, ...]:
    """Sentences about parts of the trained model that the exported model lacks."""
    run = run_sections(workdir)
    return run.spec.export_notes(run.task.data)


def _part(run: Sections, description: ModelDescription, name: str) -> TrainedPart:
    """A part of a run, such as the generator of a training with replaced tokens."""
    parts, task = run.spec.parts, run.name
    if name not in parts:
        known = f"; known are {', '.join(parts)}" if parts else ""
        rule = f"a run of the task {task} has no such part{known}: leave --part out"
        raise OptionError("part", name, rule)
    return parts[name](run.task, description, run.execution())
