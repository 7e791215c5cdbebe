"""The section `distillation` of a config."""

import dataclasses

from bert_jax.errors import OptionError, require_at_least, require_between


@dataclasses.dataclass(frozen=True)
class DistillationOptions:
    """The section `distillation` of a config; the loss is the sum of these parts × their weights.

    Attributes:
        teacher: model directory of a finished model for the same task; "": no distillation.
        task_weight: weight of the task's own loss, that of the labels.
        soft_weight: weight of the loss against the teacher's scores (Hinton et al., 2015).
        temperature: T, by which scores are divided before the softmax; the loss is multiplied by
            T², so that its gradient keeps its size; 1e-6 to 100.
        cosine_weight: weight of 1 - cosine of the last hidden states (DistilBERT).
        hidden_weight: weight of the squared difference of hidden states; those of a student of
            another width are projected to the teacher's, see `projection` (TinyBERT).
        attention_weight: weight of the divergence of attention weights (MobileBERT, MiniLM).
        value_relation_weight: weight of the divergence of value relations (MiniLM).
        layer_map: for each layer of the student the teacher's layer, from 1, that the three weights
            before compare it with, or 0 for none; (): spread evenly, the last with the last.
        keep_logits: directory in which the teacher's scores for the training data are kept, so that
            it computes them once for all runs; "": it computes them in every step.
    """

    teacher: str = ""
    task_weight: float = 0.5
    soft_weight: float = 0.5
    temperature: float = 2.0
    cosine_weight: float = 0.0
    hidden_weight: float = 0.0
    attention_weight: float = 0.0
    value_relation_weight: float = 0.0
    layer_map: tuple[int, ...] = ()
    keep_logits: str = ""

    def __post_init__(self) -> None:
        weights = ("task", "soft", "cosine", "hidden", "attention", "value_relation")
        for name in (f"{part}_weight" for part in weights):
            require_between(f"distillation.{name}", getattr(self, name), 0)
        require_between("distillation.temperature", self.temperature, 1e-6, 100)
        for layer in self.layer_map:
            require_at_least("distillation.layer_map", layer, 0)
        if self.layer_map and not any(self.layer_map):
            raise OptionError(
                "distillation.layer_map", self.layer_map, "give a layer of the teacher, from 1"
            )
        if self.teacher and not any(getattr(self, f"{part}_weight") for part in weights[1:]):
            rule = "give it a weight above 0; without the teacher, leave distillation.teacher out"
            raise OptionError("distillation.soft_weight", self.soft_weight, rule)
        if self.keep_logits and self.compares_layers:
            rule = "scores alone are kept: leave it out, or the weights of layers"
            raise OptionError("distillation.keep_logits", self.keep_logits, rule)

    @property
    def compares_layers(self) -> bool:
        """Whether the loss needs more of the teacher than its scores."""
        relations = self.attention_weight or self.value_relation_weight
        return bool(self.cosine_weight or self.hidden_weight or relations)
