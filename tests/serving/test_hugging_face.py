"""The parameters of Hugging Face's task form, and zero-shot classification."""

import dataclasses
import re
import threading
import time

import numpy as np
import pytest
import uvicorn

from bert_jax.tasks.base.predictor import softmax
from bert_jax.tasks.question_answering.predict import AnswerOptions

NLI = ("contradiction", "neutral", "entailment")
QUESTION, CONTEXT = (
    "the cat",
    "the dog sat on a mat . the cat ran to the sea . it was long and warm",
)


@pytest.fixture(scope="module")
def models(make_model):
    classifier = make_model("classification", num_labels=3)
    description = dataclasses.replace(classifier.description, labels=NLI)
    return {
        "labels": dataclasses.replace(classifier, description=description),
        "answers": make_model("question_answering"),
        "tags": make_model("tagging", num_labels=3),
        "score": make_model("classification", num_labels=1),
    }


@pytest.fixture(scope="module")
def client(serve, models):
    return serve(models)


def ask(client, task, inputs, **parameters):
    body = {"inputs": inputs, "parameters": parameters}
    answer = client.post(f"/pipeline/{task}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_functions_of_the_scores_of_labels(client, models):
    (raw,) = models["labels"].classify(["a dog"], raw_scores=True)
    values = np.array(list(raw.probabilities.values()))
    expected = {"none": values, "softmax": softmax(values), "sigmoid": 1 / (1 + np.exp(-values))}
    for function, scores in expected.items():
        (made,) = ask(client, "text-classification", "a dog", function_to_apply=function)
        by_label = {each["label"]: each["score"] for each in made}
        assert by_label == pytest.approx(dict(zip(NLI, scores, strict=True)), abs=1e-6)
    (best,) = ask(client, "text-classification", ["a dog"], top_k=1)
    assert [each["label"] for each in best] == [NLI[int(values.argmax())]]


@pytest.mark.parametrize(
    ("function", "expected"),
    [("softmax", lambda logit: 1), ("none", lambda logit: logit)],
)
def test_functions_of_a_single_score(client, models, function, expected):
    (logit,) = models["score"].classify(["a dog"], raw_scores=True)
    body = {"inputs": "a dog", "parameters": {"function_to_apply": function}}
    ((made,),) = client.post("/models/score/pipeline/text-classification", json=body).json()
    assert made["score"] == pytest.approx(expected(logit), abs=1e-6)


@pytest.mark.parametrize(
    ("parameters", "options"),
    [
        ({}, {}),
        ({"max_seq_len": 12, "doc_stride": 3}, {"max_length": 12, "window_step": 4}),
        ({"max_answer_len": 2, "max_question_len": 1}, {"answer_length": 2, "question_length": 1}),
    ],
)
def test_lengths_of_windows_and_answers(client, models, parameters, options):
    inputs = {"question": QUESTION, "context": CONTEXT}
    made = ask(client, "question-answering", inputs, top_k=3, align_to_words=True, **parameters)
    expected = models["answers"].answer(QUESTION, CONTEXT, 3, options=AnswerOptions(**options))
    assert [(each["answer"], each["start"], each["end"]) for each in made] == [
        (each.text, each.start, each.end) for each in expected
    ]
    scores = [each.score for each in expected]
    assert [each["score"] for each in made] == pytest.approx(scores, abs=1e-6)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/pipeline/question-answering", {"parameters": {"max_seq_len": 12, "doc_stride": 6}}),
        ("/answer", {"options": {"window_step": 1}}),
    ],
)
def test_windows_with_too_many_tokens_are_not_made(serve, models, path, body):
    """A short request could else have rows that fill the memory."""
    client = serve({"answers": models["answers"]}, max_tokens=500)
    question = {"question": QUESTION, "context": "a dog sat . " * 20}
    whole = {"records": [question]} if path == "/answer" else {"inputs": question}
    assert client.post(path, json=whole).status_code == 200
    answer = client.post(path, json=whole | body)
    assert answer.status_code == 422
    assert re.search(r"tokens in \d\d windows, and at most 500 are read", answer.json()["error"])


def test_labels_that_a_text_entails(client, models):
    labels, template = ["cat", "dog", "sea"], "it is {} ."
    pairs = [("the cat sat", f"it is {label} .") for label in labels]
    raw = [each.probabilities for each in models["labels"].classify(pairs, raw_scores=True)]
    positive, negative = (np.array([each[name] for each in raw]) for name in NLI[::-2])
    alone = softmax(np.stack([negative, positive], axis=-1))[:, 1]
    for multi_label, scores in ((False, softmax(positive)), (True, alone)):
        made = ask(
            client,
            "zero-shot-classification",
            "the cat sat",
            candidate_labels=labels,
            hypothesis_template=template,
            multi_label=multi_label,
        )
        order = np.argsort(-scores)
        assert [each["label"] for each in made] == [labels[number] for number in order]
        assert [each["score"] for each in made] == pytest.approx(scores[order].tolist(), abs=1e-6)


def test_each_label_counts_as_a_text(serve, models):
    client = serve({"labels": models["labels"]}, max_texts=3)
    body = {"inputs": "a dog", "parameters": {"candidate_labels": ["a", "b", "c", "d"]}}
    assert client.post("/pipeline/zero-shot-classification", json=body).status_code == 413


def test_windows_may_be_longer_than_those_of_the_files(serve, models):
    """As long as the model has positions."""
    model = models["answers"]
    short = dataclasses.replace(model.tokenizer.description, model_max_length=12)
    tokenizer = model.tokenizer.with_description(short)
    client = serve({"answers": dataclasses.replace(model, tokenizer=tokenizer)})
    inputs = {"question": QUESTION, "context": CONTEXT}
    for length in (24, 10):
        body = {"inputs": inputs, "parameters": {"max_seq_len": length}}
        answer = client.post("/pipeline/question-answering", json=body)
        assert answer.status_code == 200, answer.text
        options = AnswerOptions(max_length=length)
        (expected,) = model.answer([QUESTION], CONTEXT, options=options)
        assert answer.json()["answer"] == expected.text


def test_a_model_for_entailment_is_found(serve, models):
    client = serve({"score": models["score"], "labels": models["labels"]})
    (made,) = ask(client, "zero-shot-classification", "a dog", candidate_labels=["dog"])
    assert made["label"] == "dog"


@pytest.mark.parametrize(
    ("task", "parameters", "fields"),
    [
        ("zero-shot-classification", {"candidate_labels": ["dog"]}, {"labels": ("entailment",)}),
        ("zero-shot-classification", {"candidate_labels": ["dog"]}, {"other": {"id2label": 5}}),
        ("text-classification", {}, {"other": {"id2label": 5}}),
        ("text-classification", {}, {"problem_type": "poem"}),
    ],
)
def test_a_model_whose_labels_are_wrong_is_named(serve, models, task, parameters, fields):
    model = models["score"]
    description = dataclasses.replace(model.description, **fields)
    client = serve({"score": dataclasses.replace(model, description=description)})
    body = {"inputs": "a dog", "parameters": parameters}
    answer = client.post(f"/pipeline/{task}", json=body)
    assert (answer.status_code, answer.json()["field"]) == (422, "model")


@pytest.mark.parametrize(
    ("task", "parameters", "field"),
    [
        ("question-answering", {"align_to_words": False}, "parameters.align_to_words"),
        ("question-answering", {"max_seq_len": 33}, "parameters.max_seq_len"),
        ("question-answering", {"doc_stride": 30}, "parameters.doc_stride"),
        ("question-answering", {"max_answer_len": 2**31}, "parameters.max_answer_len"),
        ("text-classification", {"top_k": 0}, "parameters.top_k"),
        ("text-classification", {"function_to_apply": "tanh"}, "parameters.function_to_apply"),
        (
            "token-classification",
            {"stride": 2, "aggregation_strategy": "none"},
            "parameters.stride",
        ),
        ("token-classification", {"stride": 30}, "parameters.stride"),
        ("zero-shot-classification", {}, "parameters.candidate_labels"),
        (
            "zero-shot-classification",
            {"candidate_labels": ["a"], "hypothesis_template": "it"},
            "parameters.hypothesis_template",
        ),
        ("cook", {}, "task"),
    ],
)
def test_a_parameter_that_is_not_computed_is_named(client, task, parameters, field):
    is_question = task == "question-answering"
    inputs = {"question": QUESTION, "context": CONTEXT} if is_question else "a dog"
    body = {"inputs": inputs, "parameters": parameters}
    answer = client.post(f"/pipeline/{task}", json=body)
    assert (answer.status_code, answer.json()["field"]) == (422, field)


@pytest.mark.parametrize(
    ("task", "field"),
    [("text-classification", "normalize"), ("sentence-similarity", "truncate")],
)
def test_a_field_of_another_task_is_named(client, task, field):
    answer = client.post(f"/pipeline/{task}", json={"inputs": "a", field: False})
    assert (answer.status_code, answer.json()["field"]) == (422, field)


def test_similarities_of_texts_that_may_not_be_cut(serve, encoder):
    inputs = {"source_sentence": "a dog", "sentences": ["the cat " * 30]}
    body = {"inputs": inputs, "parameters": {"truncate": False}}
    answer = serve({"tiny": encoder}).post("/", json=body)
    assert (answer.status_code, answer.json()["field"]) == (413, "inputs.sentences[0]")


@pytest.fixture
def address(client):
    """The address of the same application on loopback."""
    config = uvicorn.Config(client.app, port=0, log_config=None, lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


@pytest.mark.slow
def test_the_client_of_hugging_face(address, models):
    hub = pytest.importorskip("huggingface_hub")

    def client(task):
        return hub.InferenceClient(model=f"{address}/pipeline/{task}")

    made = client("question-answering").question_answering(
        question=QUESTION, context=CONTEXT, max_seq_len=12, doc_stride=3, align_to_words=True
    )
    options = AnswerOptions(max_length=12, window_step=4)
    (best,) = models["answers"].answer([QUESTION], CONTEXT, options=options)
    assert (made.answer, made.start, made.end) == (best.text, best.start, best.end)
    (expected,) = models["labels"].classify(["a dog"])
    best, *_ = client("text-classification").text_classification(
        "a dog", top_k=2, function_to_apply="softmax"
    )
    assert (best.label, best.score) == (expected.label, pytest.approx(expected.score, abs=1e-6))
    words = client("token-classification").token_classification(
        "a dog", aggregation_strategy="none", ignore_labels=["none"]
    )
    assert [word.entity for word in words] == [*models["tags"].tag(["a dog"])[0].tags]
    labels = client("zero-shot-classification").zero_shot_classification(
        "the cat sat", ["cat", "dog"], multi_label=True, hypothesis_template="it is {} ."
    )
    assert {each.label for each in labels} == {"cat", "dog"}
