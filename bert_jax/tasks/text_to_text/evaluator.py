"""Evaluation of an encoder-decoder by the probability of the targets, and by what it writes."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from jax.sharding import Mesh

from bert_jax.data.examples import Example
from bert_jax.data.labelled_batches import LabelledBatches
from bert_jax.data.pair_rows import PairRows
from bert_jax.data.pipeline import Batch
from bert_jax.metrics.generated_texts import CorpusScore, text_scores
from bert_jax.sharding.hosts import batch_share
from bert_jax.sharding.mesh import batch_parts, explain_out_of_memory, one_device_mesh
from bert_jax.tasks.base.generation_options import GenerationOptions
from bert_jax.tasks.base.labelled_evaluator import LabelledEvaluator, result_of_sets
from bert_jax.tasks.base.predictor import Model
from bert_jax.tasks.base.splits import EvalSet
from bert_jax.tasks.base.task import Content, EvalResult, Predict, Task, mean_losses
from bert_jax.tasks.generate import PREDICT, Generation, GenerationPredictor
from bert_jax.tasks.text_to_text.options import TextToTextData, generation_keys
from bert_jax.tasks.text_to_text.pairs import PairEncoder


@dataclasses.dataclass(frozen=True, eq=False)
class TextToTextEvaluator(LabelledEvaluator[str, list[Generation]]):
    """Means over the tokens of the first target of each source; scores of generated texts.

    Texts are generated where there are scores, and for files of predictions.

    Attributes:
        task: the task, which computes the losses.
        encode: how pairs become token ids.
        generation: how to generate.
        data: names and options of the scores.
    """

    PREDICT = PREDICT
    lower_is_better = ("loss", "cross_entropy", "perplexity")

    task: Task
    encode: PairEncoder
    generation: GenerationOptions
    data: TextToTextData

    def check(self) -> None:
        """Checks the options of the generation, too; see also `LabelledEvaluator`."""
        super().check()
        self.predictor(self.task.model(None, one_device_mesh()))

    def predictor(self, model: Model) -> GenerationPredictor:
        with generation_keys():
            options = dataclasses.replace(self.predict_options, **vars(self.generation))
            return GenerationPredictor(model, options)

    def evaluate(self, model: Model, predict: Predict, *, with_test: bool) -> EvalResult:
        validation, test = self.splits.validation, self.splits.test
        predictor, prefix = self.predictor(model), self.encode.prefix
        metrics: dict[str, dict[str, float]] = {}  # by set
        predictions: dict[str, list[list[Generation]]] = {}
        for eval_set in [*validation, *(test if with_test else ())]:
            examples, name = eval_set.examples, eval_set.name
            is_labelled = self.is_labelled(eval_set)
            if is_labelled:
                metrics[name] = self._means(examples, model)
            if self.data.metrics or with_test:
                prefixed = [
                    dataclasses.replace(each, input=f"{prefix}{each.input}") for each in examples
                ]
                predictions[name] = predict(predictor, prefixed, name)
                if is_labelled:
                    metrics[name] |= self.metrics(examples, predictions[name])
        best = self.best_metric[0]
        return result_of_sets(self.splits, best, metrics, self.description, predictions)

    def metrics(
        self, examples: list[Example[str]], predictions: list[list[Generation]]
    ) -> dict[str, float]:
        """The scores of the best generations."""
        scores = self._scores(examples, predictions)
        return {name: score.value for name, score in scores.items()}

    def metric_names(self, examples: list[Example[str]]) -> Iterable[str]:
        return (*self.lower_is_better, "accuracy", *self.data.metrics)

    def expected(self, example: Example[str]) -> Any:
        return list(example.label)

    def further_files(self, eval_set: EvalSet[str]) -> Iterable[str]:
        """The best generations, one a line, as sacrebleu's command reads them."""
        return (f"{eval_set.name}.txt",)

    def reports(
        self, examples: list[Example[str]], predictions: list[list[Generation]]
    ) -> Mapping[str, Content]:
        """Each score with its signature, which others need to compare theirs with it."""
        scores = self._scores(examples, predictions)
        lines = (f"{name} {each.value:.4f} {each.signature}\n" for name, each in scores.items())
        return {"report.txt": "".join(lines)} if scores else {}

    def _scores(
        self, examples: list[Example[str]], predictions: list[list[Generation]]
    ) -> dict[str, CorpusScore]:
        references = [example.label for example in examples]
        texts = [generations[0].text if generations else "" for generations in predictions]
        return text_scores(self.data.metrics, references, texts, self.data.bleu_tokenizer)

    def _means(self, examples: list[Example[str]], model: Model) -> dict[str, float]:
        rule = "lower {train.global_batch_size}"
        with explain_out_of_memory("a batch of the evaluation", "train.global_batch_size", rule):
            batches = self._batches(examples, model.mesh)
            return mean_losses(self.task, model.params, batches, model.mesh)

    def _batches(self, examples: list[Example[str]], mesh: Mesh) -> Iterator[Batch]:
        """Batches with each pair once; rows of padding have the weight 0."""
        share, divisor = batch_share(mesh), batch_parts(mesh)
        pairs, _ = self.encode(examples)
        rows = PairRows(pairs, packed=False, seed=0)
        batches = LabelledBatches(
            rows.lengths,
            rows.batch,
            batch_size=-(-self.options.batch_size // divisor) * divisor,
            seed=0,
            most=pairs.source_length,
            epochs=1,
        )
        for number in range(batches.batches_per_epoch):
            yield batches.batch(number, host=share.index, hosts=share.count)
