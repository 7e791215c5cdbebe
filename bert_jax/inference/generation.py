"""The methods `generate` and `alignments` of a loaded model."""

from collections.abc import Iterable

from bert_jax.data.examples import Text
from bert_jax.inference.engine import predict_examples
from bert_jax.tasks.alignments import Alignment, AlignmentPredictor
from bert_jax.tasks.base.generation_options import GenerationOptions
from bert_jax.tasks.base.predictor import Model, not_one_string
from bert_jax.tasks.generate import GeneratePredictOptions, Generation, GenerationPredictor


def generate(
    model: Model,
    texts: Iterable[Text],
    *,
    max_new_tokens: int | None = None,
    num_beams: int | None = None,
    length_penalty: float | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    num_return_sequences: int | None = None,
    seed: int = 0,
    options: GenerationOptions | None = None,
    batch_size: int = 32,
    max_length: int | None = None,
) -> list[list[Generation]]:
    """What a model writes: a translation or an answer for each text, or what follows a prompt.

    What is None is as in the files of the model; if they do not say, as noted.

    Args:
        model: a model that generates.
        texts: strings, or pairs of strings.
        max_new_tokens: maximum number of tokens (64, or what fits in; after prompts, half the
            positions).
        num_beams: beams of a beam search (1: greedy search, or samples).
        length_penalty: α: log-probabilities are divided by (number of tokens)^α (1).
        temperature: above 0, tokens are sampled from the logits divided by it (0).
        top_k: number of the best tokens that are sampled from (0: all).
        top_p: only the fewest best tokens whose probabilities add up to it are sampled (1).
        num_return_sequences: generations of a text (1); at most `num_beams`, or samples.
        seed: seed of the samples.
        options: all of these and further ones; then none is given besides.
        batch_size: maximum number of texts computed together.
        max_length: maximum number of tokens of a text; longer ones are cut, longer prompts refused.

    Returns:
        For each text its generations, the best first.

    Raises:
        UserError: the model does not generate, an option is wrong, or an element is not a text.
    """
    chosen = GenerationOptions(
        max_new_tokens=max_new_tokens,
        num_beams=num_beams,
        length_penalty=length_penalty,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        num_return_sequences=num_return_sequences,
        seed=seed,
    )
    if options is not None:
        if chosen != GenerationOptions():
            raise ValueError("give single options, or all of them as `options`, but not both")
        chosen = options
    how = GeneratePredictOptions(**vars(chosen), batch_size=batch_size, max_length=max_length)
    predictor = GenerationPredictor(model, how)
    return list(predict_examples(predictor, not_one_string(texts)))


def alignments(
    model: Model,
    texts: Iterable[Text],
    *,
    options: GenerationOptions | None = None,
    batch_size: int = 8,
    max_length: int | None = None,
) -> list[Alignment]:
    """How much each token of what a decoder writes for a text attends to each of the text.

    The best generation counts. For arguments see `generate`; without `options`, the files of the
    model say how to generate.

    Raises:
        UserError: the model has no such attention, an option is wrong, or an element is not a text.
    """
    chosen = vars(options or GenerationOptions())
    how = GeneratePredictOptions(**chosen, batch_size=batch_size, max_length=max_length)
    predictor = AlignmentPredictor(model, how)
    return list(predict_examples(predictor, not_one_string(texts)))
