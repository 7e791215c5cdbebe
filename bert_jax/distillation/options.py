"""The section `distillation` of a config."""

import dataclasses

from bert_jax.errors import OptionError, require_at_least, require_between

# The parts of the loss against the teacher.
PARTS = ("soft", "hard", "cosine", "hidden", "attention", "value_relation")
# Those against its scores; the others need its layers.
SCORE_PARTS = ("soft", "hard")


@dataclasses.dataclass(frozen=True)
class DistillationOptions:
    """The section `distillation` of a config; the loss is the sum of these parts × their weights.

    Attributes:
        teacher: model directory of a finished model for the same task; "": no distillation.
        task_weight: weight of the task's own loss, against the labels.
        soft_weight: weight of the loss against the teacher's scores (Hinton et al., 2015).
        hard_weight: weight of the loss against the teacher's decisions, as if they were labels
            (DeiT, Touvron et al., 2021, equation 3).
        temperature: divides scores before the softmax; the loss is multiplied by its square, so
            that the gradient keeps its size; 1e-6 to 100.
        cosine_weight: weight of 1 - cosine of the last hidden states (DistilBERT).
        hidden_weight: weight of the squared difference of hidden states; a student of another
            width projects its hidden states to the teacher's width, see `projection` (TinyBERT).
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
    hard_weight: float = 0.0
    temperature: float = 2.0
    cosine_weight: float = 0.0
    hidden_weight: float = 0.0
    attention_weight: float = 0.0
    value_relation_weight: float = 0.0
    layer_map: tuple[int, ...] = ()
    keep_logits: str = ""

    def __post_init__(self) -> None:
        for part in ("task", *PARTS):
            require_between(f"distillation.{part}_weight", getattr(self, f"{part}_weight"), 0)
        require_between("distillation.temperature", self.temperature, 1e-6, 100)
        for layer in self.layer_map:
            require_at_least("distillation.layer_map", layer, 0)
        if self.layer_map and not any(self.layer_map):
            rule = "give a layer of the teacher, from 1"
            raise OptionError("distillation.layer_map", self.layer_map, rule)
        if self.teacher and not self.parts:
            rule = "give it a weight above 0; without the teacher, leave {distillation.teacher} out"
            raise OptionError("distillation.soft_weight", self.soft_weight, rule)
        if self.keep_logits and self.compares_layers:
            rule = "only scores are kept: leave it out, or the weights of layers"
            raise OptionError("distillation.keep_logits", self.keep_logits, rule)

    @property
    def parts(self) -> dict[str, float]:
        """The weights above 0 of the parts of the loss against the teacher."""
        weights = {part: getattr(self, f"{part}_weight") for part in PARTS}
        return {part: weight for part, weight in weights.items() if weight}

    @property
    def compares_layers(self) -> bool:
        """Whether the loss needs the teacher's layers, not only its scores."""
        return bool(self.parts.keys() - {*SCORE_PARTS})
