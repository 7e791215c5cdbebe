r"""Pre-training with LAMB in very large batches (You et al., 2020, https://arxiv.org/abs/1904.00962).

    bert-jax train --config configs/pretrain_lamb.py:corpus=CORPUS --workdir RUN
    bert-jax train --config configs/pretrain_lamb.py:length=512,corpus=CORPUS,init_from=RUN \
        --workdir RUN512

The first command is the first phase, 65,536 sequences of 128 a step, the second one the second
phase, 32,768 sequences of 512. Together they see the paper's 512 million sequences in 8,593 steps.
A batch as large as that needs a pod, or many parts: `--config.train.microbatches=64`.

Learning rate and warm-up of any other `batch` follow from it as in the paper's table of untuned
batches (512 to 32,768): the rate grows with the root of the batch, the warm-up ends after the same
number of sequences; the first phase's batch is one row beyond that table. NVIDIA's
DeepLearningExamples publish slightly lower ones for the same two phases: rates of 6e-3 and 4e-3,
warm-ups of 28.43 % and 12.8 %.
"""

from ml_collections import ConfigDict

LARGEST = 32_768  # the last row of the table: rate 5e-3, a fifth of all steps for the warm-up
SEQUENCES = 512_000_000  # a million steps of 512
PHASES = {128: (0.9, 2 * LARGEST), 512: (0.1, LARGEST)}  # share of the sequences, and the batch


def get_config(
    size: str = "large", length: int = 128, batch: int = 0, corpus: str = "", init_from: str = ""
) -> ConfigDict:
    """The phase of a length, 128 or 512; `batch` 0 is the paper's."""
    if length not in PHASES:
        raise ValueError(f"length is {length}; the phases have 128 and 512")
    share, usual = PHASES[length]
    batch = batch or usual
    steps = round(share * SEQUENCES / batch)
    return ConfigDict(
        {
            "task": "pretraining",
            "model": {"size": size},
            "init_from": init_from,
            "data": {
                "corpus": corpus,
                "length": length,
                "max_predictions": -(-length * 15 // 100),
            },
            "optimizer": {
                "name": "lamb",
                "learning_rate": 5e-3 * (batch / LARGEST) ** 0.5,
                "warmup_ratio": batch / LARGEST / 5,
                # The paper's polynomial decay has the power 1.
                "decay": "linear",
            },
            "train": {
                "steps": steps,
                "global_batch_size": batch,
                "log_every": 10,
                "eval_every": max(1, steps // 20),
                "checkpoint_every": max(1, steps // 20),
            },
        }
    )
