"""How much `accelerator.py` measures: on an accelerator, and in a rehearsal on a CPU."""

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Scale:
    """Sizes of the work.

    Attributes:
        name: of the scale.
        sizes: sizes of BERT that are timed; the first is used for all else.
        lengths: tokens of a row that are timed; the last one with packed rows.
        rows: most rows of a device in a timed step; fewer where memory is short.
        steps: timed steps.
        kernel_lengths: tokens of a row for the parity of the kernels.
        attention_lengths: tokens of a row for their times.
        attention_tokens: tokens of a batch for their times.
        precision_steps: steps that are compared between bfloat16 and float32.
        precision_rows: rows of these.
        texts: texts that are embedded.
        peer_rows: rows of a step that PyTorch does as well.
        checkpoints: checkpoints that are written.
        keys: more config keys of the timed steps.
    """

    name: str
    sizes: tuple[str, ...]
    lengths: tuple[int, ...]
    rows: int
    steps: int
    kernel_lengths: tuple[int, ...]
    attention_lengths: tuple[int, ...]
    attention_tokens: int
    precision_steps: int
    precision_rows: int
    texts: int
    peer_rows: int
    checkpoints: int
    keys: Mapping[str, int] = dataclasses.field(default_factory=dict)


FULL = Scale(
    name="full",
    sizes=("base", "large"),
    lengths=(128, 512),
    rows=256,
    steps=20,
    kernel_lengths=(64, 128, 256, 512),
    attention_lengths=(128, 256, 512, 1024),
    attention_tokens=16384,
    precision_steps=50,
    precision_rows=32,
    texts=4000,
    peer_rows=32,
    checkpoints=5,
)
REHEARSAL = Scale(
    name="rehearsal",
    sizes=("tiny",),
    lengths=(32,),
    rows=4,
    steps=2,
    kernel_lengths=(64,),
    attention_lengths=(64,),
    attention_tokens=128,
    precision_steps=3,
    precision_rows=4,
    texts=20,
    peer_rows=2,
    checkpoints=1,
    keys={"model.num_hidden_layers": 1, "model.vocab_size": 200, "tokenizer.vocab_size": 200},
)
