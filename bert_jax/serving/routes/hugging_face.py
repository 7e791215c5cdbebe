"""Hugging Face's task form, `{"inputs": …, "parameters": {…}}`, as `InferenceClient` sends it."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, TypeVar

import numpy as np
from pydantic import Field, ValidationError

from bert_jax.checkpoints.config_file import MULTI_LABEL, SINGLE_LABEL, problem_type
from bert_jax.data.examples import Question
from bert_jax.errors import UserError
from bert_jax.serving.endpoints import Endpoint, Reply, RequestForm
from bert_jax.serving.errors import from_user_error, from_validation_error, unprocessable
from bert_jax.serving.models import ServedModel
from bert_jax.serving.routes import embeddings_inference as vectors
from bert_jax.serving.routes.scores import labelled
from bert_jax.serving.routes.token_classification import TokenClassification, tagged
from bert_jax.serving.service import Predicted, Service
from bert_jax.tasks.base.labels import label_names
from bert_jax.tasks.base.predictor import EncodedExample, softmax
from bert_jax.tasks.classification.zero_shot import TEMPLATE, CandidateLabels, Entailment

Form = TypeVar("Form", bound=RequestForm)

_ZERO_SHOT = "zero-shot-classification"
_FUNCTIONS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "none": lambda scores: scores,
    "sigmoid": lambda scores: np.exp(-np.logaddexp(0, -scores)),
    "softmax": softmax,
}
# What scores have had applied if a request names no function; a regression has others.
_OWN_FUNCTIONS = {SINGLE_LABEL: "softmax", MULTI_LABEL: "sigmoid"}
# Names of parameters, where options of ours have others.
_PARAMETERS = {
    "answer_length": "max_answer_len",
    "question_length": "max_question_len",
    "max_length": "max_seq_len",
    "window_step": "doc_stride",
    "null_threshold": "handle_impossible_answer",
    "template": "hypothesis_template",
}
# Fields beside the inputs that only feature extraction has.
_VECTOR_FIELDS = ("normalize", "prompt_name", "truncation_direction", "dimensions")
_NO_FIELDS: Mapping[str, tuple[str, ...]] = {
    "feature-extraction": (),
    "sentence-similarity": (*_VECTOR_FIELDS, "truncate"),  # which its parameters have
}


class TaskFormRequest(RequestForm):
    """Inputs and parameters of a task; those of feature extraction are beside its inputs."""

    inputs: Any
    parameters: dict[str, Any] = Field(default_factory=dict)
    normalize: bool | None = None
    prompt_name: str | None = None
    truncate: bool = True
    truncation_direction: vectors.Side | None = None
    dimensions: int | None = Field(None, ge=1)


class Text(RequestForm):
    """One text."""

    inputs: str


class Nothing(RequestForm):
    """No parameters."""


class FillMask(RequestForm):
    """Parameters of fill-mask."""

    top_k: int = Field(5, ge=1)
    targets: list[str] | None = Field(None, min_length=1)


class TextClassification(RequestForm):
    """Parameters of text-classification."""

    top_k: int | None = Field(None, ge=1)
    function_to_apply: Literal["softmax", "sigmoid", "none"] | None = None


class QuestionAnswering(RequestForm):
    """Parameters of question-answering; `doc_stride` is the overlap of two windows."""

    top_k: int = Field(1, ge=1, le=100)
    max_answer_len: int | None = Field(None, ge=1)
    max_question_len: int | None = Field(None, ge=1)
    max_seq_len: int | None = Field(None, ge=8)
    doc_stride: int | None = Field(None, ge=0)
    handle_impossible_answer: bool = False
    align_to_words: Literal[True] = True


class QuestionInputs(RequestForm):
    """A question and a passage."""

    question: str
    context: str


class ZeroShot(RequestForm):
    """Parameters of zero-shot-classification."""

    candidate_labels: list[str] = Field(min_length=1)
    multi_label: bool = False
    hypothesis_template: str = TEMPLATE


def _read(form: type[Form], value: Any, field: str = "") -> Form:
    """The body or a field of it in its form; errors name the place in the request."""
    try:
        return form.model_validate(value)
    except ValidationError as error:
        raise from_validation_error(error, field) from error


def _texts(body: TaskFormRequest) -> vectors.Texts:
    return _read(vectors.Texts, {"inputs": body.inputs})


async def _predict(
    service: Service,
    served: ServedModel,
    task: str,
    inputs: list[Any],
    body: TaskFormRequest,
    places: list[str] | None = None,
    max_length: int | None = None,
    **options: Any,
) -> Predicted:
    chosen = service.models.task_engine(served, task, options, max_length, _parameter)
    return await service.predict(
        chosen.engine, inputs, places=places, truncate=body.truncate, encoder=chosen.encoder
    )


def _parameter(option: str) -> str:
    return f"parameters.{_PARAMETERS.get(option, option)}"


async def _feature_extraction(
    service: Service, served: ServedModel, body: TaskFormRequest
) -> Reply:
    _read(Nothing, body.parameters, "parameters")
    fields = body.model_dump(exclude={"inputs", "parameters"})
    request = vectors.EmbedRequest(inputs=_texts(body).inputs, model=served.name, **fields)
    return await vectors.embed(service, request, {})


async def _fill_mask(service: Service, served: ServedModel, body: TaskFormRequest) -> Reply:
    texts = _texts(body)
    parameters = _read(FillMask, body.parameters, "parameters")
    options: dict[str, Any] = {"top_k": parameters.top_k, "targets": parameters.targets or ()}
    predicted = await _predict(
        service, served, "fill_mask", texts.texts, body, texts.places, **options
    )
    filled = [
        [
            [
                {
                    "score": word.score,
                    "token": word.token_id,
                    "token_str": word.token,
                    "sequence": word.text,
                }
                for word in mask
            ]
            for mask in masks
        ]
        for masks in predicted.predictions
    ]
    answers: list[Any] = [masks[0] if len(masks) == 1 else masks for masks in filled]
    return Reply(answers[0] if isinstance(texts.inputs, str) else answers, predicted.cut)


async def _text_classification(
    service: Service, served: ServedModel, body: TaskFormRequest
) -> Reply:
    texts = _texts(body)
    parameters = _read(TextClassification, body.parameters, "parameters")
    own = _OWN_FUNCTIONS.get(problem_type(served.model.description))
    function = None if parameters.function_to_apply == own else parameters.function_to_apply
    options = {"raw_scores": True} if function else {}
    predicted = await _predict(
        service, served, "classification", texts.texts, body, texts.places, **options
    )
    labels = [labelled(served, each) for each in predicted.predictions]
    if function:
        for classes in labels:
            scores = np.array([each["score"] for each in classes])
            for each, score in zip(classes, _FUNCTIONS[function](scores).tolist(), strict=True):
                each["score"] = score
    return Reply([classes[: parameters.top_k] for classes in labels], predicted.cut)


async def _token_classification(
    service: Service, served: ServedModel, body: TaskFormRequest
) -> Reply:
    texts = _texts(body)
    parameters = _read(TokenClassification, body.parameters, "parameters")
    answers, predicted = await tagged(service, served, texts, parameters, truncate=body.truncate)
    return Reply(answers[0] if isinstance(texts.inputs, str) else answers, predicted.cut)


async def _question_answering(
    service: Service, served: ServedModel, body: TaskFormRequest
) -> Reply:
    inputs = _read(QuestionInputs, body.inputs, "inputs")
    parameters = _read(QuestionAnswering, body.parameters, "parameters")
    most = service.limits.max_length or served.model.config.max_length
    length = parameters.max_seq_len
    if length is not None and length > most:
        message = f"max_seq_len is {length}; give at most {most}"
        raise unprocessable(message, "parameters.max_seq_len")
    options = {
        "top_k": parameters.top_k,
        "answer_length": parameters.max_answer_len,
        "question_length": parameters.max_question_len,
        "null_threshold": 0.0 if parameters.handle_impossible_answer else None,
    }
    given = {name: value for name, value in options.items() if value is not None}
    question = Question(inputs.question, inputs.context)
    if parameters.doc_stride is not None:
        chosen = service.models.task_engine(served, "question_answering", given, length, _parameter)
        (encoded,) = await service.in_thread(chosen.encoder.encode, [question])
        if isinstance(encoded, EncodedExample):  # else it is refused below
            size = length or chosen.engine.predictor.limit
            given["window_step"] = _window_step(size, encoded, parameters.doc_stride)
    predicted = await _predict(
        service, served, "question_answering", [question], body, ["inputs"], length, **given
    )
    answers: list[Any] = [
        {"answer": each.text, "score": each.score, "start": each.start, "end": each.end}
        for each in predicted.predictions[0].answers()
    ]
    return Reply(answers if parameters.top_k > 1 else answers[0], predicted.cut)


def _window_step(length: int, encoded: EncodedExample, overlap: int) -> int:
    """Tokens from the start of a window to the next start, if two windows share `overlap`."""
    first = encoded.rows[0]
    start, stop = first.positions
    step = length - (len(first) - (stop - start)) - overlap
    if step < 1:
        message = f"doc_stride is {overlap}; beside the question, a window has {step + overlap}"
        raise unprocessable(message, "parameters.doc_stride")
    return step


async def _sentence_similarity(
    service: Service, served: ServedModel, body: TaskFormRequest
) -> Reply:
    request = vectors.SimilarityRequest(
        inputs=_read(vectors.SimilarityInputs, body.inputs, "inputs"),
        model=served.name,
        parameters=_read(vectors.SimilarityParameters, body.parameters, "parameters"),
    )
    return await vectors.similarity(service, request, {})


async def _zero_shot(service: Service, served: ServedModel, body: TaskFormRequest) -> Reply:
    """By a model for entailment: does the text entail the template with the label?"""
    text = _read(Text, {"inputs": body.inputs}).inputs
    parameters = _read(ZeroShot, body.parameters, "parameters")
    description = served.model.description
    try:
        candidates = CandidateLabels(
            tuple(parameters.candidate_labels),
            parameters.hypothesis_template,
            parameters.multi_label,
        )
        names, entailment = label_names(description), Entailment.required(description)
    except UserError as error:
        raise from_user_error(error, "model", _parameter) from error
    pairs = candidates.pairs(text)
    places = ["inputs"] * len(pairs)
    predicted = await _predict(
        service, served, "classification", pairs, body, places, raw_scores=True
    )
    outputs = [[each.probabilities[name] for name in names] for each in predicted.predictions]
    scores = entailment.choose(candidates, np.array(outputs)).probabilities
    best = sorted(scores, key=lambda label: -scores[label])
    return Reply([{"label": label, "score": scores[label]} for label in best], predicted.cut)


_Answer = Callable[[Service, ServedModel, TaskFormRequest], Awaitable[Reply]]

# Hugging Face's name of a task → ours, and the function.
_TASKS: Mapping[str, tuple[str, _Answer]] = {
    "feature-extraction": ("embed", _feature_extraction),
    "fill-mask": ("fill_mask", _fill_mask),
    "text-classification": ("classification", _text_classification),
    "token-classification": ("tagging", _token_classification),
    "question-answering": ("question_answering", _question_answering),
    "sentence-similarity": ("embed", _sentence_similarity),
    _ZERO_SHOT: ("classification", _zero_shot),
}


async def answer(service: Service, body: TaskFormRequest, path: Mapping[str, str]) -> Reply:
    """The answer of the task in the path; else of the one that the inputs or the model show."""
    name = path.get("task") or _shown_task(service, body, path.get("model"))
    if name not in _TASKS:
        raise unprocessable(f"task {name!r:.80}: known are {', '.join(_TASKS)}", "task")
    if given := body.model_fields_set.intersection(_NO_FIELDS.get(name, _VECTOR_FIELDS)):
        field = min(given)
        rule = "it is one of the parameters" if field == "truncate" else "leave it out"
        raise unprocessable(f"{field}: {name} has no such field; {rule}", field)
    return await _TASKS[name][1](service, _served(service, name, path.get("model")), body)


def _served(service: Service, name: str, model: str | None) -> ServedModel:
    """The model of a name; else the first for the task, for zero-shot one for entailment."""
    task = _TASKS[name][0]
    if name == _ZERO_SHOT and model is None:
        for served in service.models.served:
            if served.task == task and Entailment.from_labels(served.model.description):
                return served
    return service.models.named(model, task)


def _shown_task(service: Service, body: TaskFormRequest, model: str | None) -> str:
    if isinstance(body.inputs, dict):
        return "question-answering" if "question" in body.inputs else "sentence-similarity"
    if "candidate_labels" in body.parameters:
        return _ZERO_SHOT
    served = service.models.named(model)
    names = [name for name, (task, _) in _TASKS.items() if task == served.task]
    return names[0] if names else served.task


GROUP = "Hugging Face"
ENDPOINTS = tuple(
    Endpoint(path, TaskFormRequest, answer, "A task in Hugging Face's form", GROUP)
    for path in ("/", "/pipeline/{task}", "/models/{model}", "/models/{model}/pipeline/{task}")
)
