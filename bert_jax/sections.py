"""A config as typed options: each section becomes a dataclass, which refuses bad values."""

import dataclasses
from typing import Any

from ml_collections import ConfigDict

from bert_jax.distillation.options import DistillationOptions
from bert_jax.errors import require_at_least
from bert_jax.models.execution import Execution
from bert_jax.models.head import model_keys
from bert_jax.options import from_keys, keys_of
from bert_jax.presets import model_fields
from bert_jax.sharding.mesh import MeshShape
from bert_jax.tasks import find_task
from bert_jax.tasks.base.model_init import ModelInit, ModelOptions, model_init
from bert_jax.tasks.base.train_spec import TaskConfig, TrainSpec
from bert_jax.training.optimizer import OptimizerOptions
from bert_jax.training.options import TrainOptions


@dataclasses.dataclass(frozen=True)
class Sections:
    """A config that was read.

    Attributes:
        name: the key `task`.
        keys: all keys and their values, as they are written to a run's `config.json`.
        spec: what the key `task` names.
        task: the sections and keys that a task reads.
        model, optimizer, train, distillation, mesh: the sections of these names.
    """

    name: str
    keys: dict[str, Any]
    spec: TrainSpec[Any]
    task: TaskConfig[Any]
    model: ModelOptions
    optimizer: OptimizerOptions
    train: TrainOptions
    distillation: DistillationOptions
    mesh: MeshShape

    @classmethod
    def of(cls, config: ConfigDict) -> "Sections":
        """Reads a config; opens no file and touches no device.

        Raises:
            UserError: a value is out of range.
        """
        keys = config.to_dict()
        name, seed = keys["task"], keys["seed"]
        spec: TrainSpec[Any] = find_task(name).TRAIN
        require_at_least("seed", seed, 0, 2**32 - 1)
        fields = {name: keys["model"][name] for name in model_keys()}
        chosen = {name: value for name, value in fields.items() if value is not None}
        model = from_keys(ModelOptions, keys["model"], fields=chosen)
        train = from_keys(TrainOptions, keys["train"])
        optimizer = from_keys(OptimizerOptions, keys["optimizer"])
        of_seed = {"seed": seed} if "seed" in keys_of(spec.data) else {}
        task = TaskConfig(
            from_keys(spec.data, keys["data"], **of_seed),
            tuple(from_keys(options, keys[name]) for name, options in spec.sections.items()),
            tokenizer_path=keys["tokenizer"]["path"],
            seed=seed,
            global_batch_size=train.global_batch_size,
            microbatches=train.microbatches,
            steps=train.steps,
            epochs=train.epochs,
            freeze_encoder=optimizer.freeze_encoder,
            freeze_layers=optimizer.freeze_layers,
        )
        distillation = from_keys(DistillationOptions, keys["distillation"])
        mesh = from_keys(MeshShape, keys["mesh"])
        return cls(name, keys, spec, task, model, optimizer, train, distillation, mesh)

    def execution(self, platform: str = "") -> Execution:
        """How models are computed; "" stands for the platform of the local devices."""
        return self.model.execution(self.keys["precision"], platform)

    def model_init(self, platform: str = "") -> ModelInit:
        """The model that is trained, and what it starts from; reads the files of `init_from`."""
        return model_init(
            self.model,
            self.execution(platform),
            init_from=self.keys["init_from"],
            tokenizer_path=self.task.tokenizer_path,
            preset=model_fields(self.keys["preset"]),
        )
