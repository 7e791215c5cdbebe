r"""Translation: the Transformer of "Attention is all you need" (Vaswani et al., 2017), or an LSTM.

    C=configs/translation.py:train=train.en.gz,validation=val.en.gz,source=en,target=de
    bert-jax prepare --config $C --output vocabulary
    bert-jax train --config $C,tokenizer=vocabulary --workdir runs/translation

The targets are in train.de.gz and val.de.gz: two files have a line for each sentence, and their
names differ in the language. Tables have a column for each language, JSON lines the same keys, also
in an object "translation". `prepare` makes one vocabulary for both languages.

`family=lstm` or `gru`, with a size of theirs, is sequence to sequence (Sutskever et al., 2014), one
pair a row: `--config.model.reverse_input=True` reverses the source, and
`--config.model.decoder_attention=general` (or dot, additive) adds attention (Luong et al., 2015).

`bert-jax plan --topology v5e:2x4` for size=base: 3.6 of 15.7 GiB of each of 8 devices, at least
8 ms a step and 1.8 device hours for the 100,000 steps (compiled, not run). Trained to the end was
size=tiny, on 29,000 captions: docs/results.md, Translation.
"""

from ml_collections import ConfigDict

from bert_jax.families.family import find_family


def get_config(
    train: str = "",
    validation: str = "",
    test: str = "",
    source: str = "",
    target: str = "",
    tokenizer: str = "",
    vocab_size: int = 32_000,
    size: str = "base",
    steps: int = 100_000,
    family: str = "marian",
) -> ConfigDict:
    """Section 5 of the paper: a warm-up of 4,000 of 100,000 steps, 25,000 tokens of each side.

    And section 6.1: beams of 4 with a length penalty of 0.6, and the mean of 5 checkpoints.
    """
    warmup, shape = max(1, min(4000, steps // 10)), find_family(family).new_config(size)
    return ConfigDict(
        {
            "task": "text_to_text",
            "tokenizer": {
                "path": tokenizer,
                "kind": "marian",
                "vocab_size": vocab_size,
                "lowercase": False,
            },
            "model": {"family": family, "size": size},
            "data": {
                "train": train,
                "validation": validation,
                "test": test,
                "source_language": source,
                "target_language": target,
                "length": 128,
                "packing": not shape.is_recurrent,
                "label_smoothing": 0.1,
                "metrics": ["bleu", "chrf"],
            },
            "generation": {"num_beams": 4, "length_penalty": 0.6, "penalty": "wmt"},
            "optimizer": {
                "learning_rate": (shape.hidden_size * warmup) ** -0.5,
                "warmup_ratio": warmup / steps,
                "decay": "inverse_sqrt",
                "beta2": 0.98,
                "epsilon": 1e-9,
                "weight_decay": 0.0,
                # A recurrent model's can be large (Sutskever et al., section 3.4).
                "max_grad_norm": 5.0 if shape.is_recurrent else 0.0,
            },
            "train": {
                "steps": steps,
                "epochs": 0.0,
                "global_batch_size": 192,  # packed rows
                "log_every": 50,
                "evaluate_per_epoch": 0,
                "eval_every": 1000,
                # 5 of them are at most the last 8 % of the run; in the paper, 7 %.
                "checkpoint_every": max(1, min(1000, steps // 50)),
                "keep_checkpoints": 5,
                "average_checkpoints": 5,
                "export": "latest",
            },
        }
    )
