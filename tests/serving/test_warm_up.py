"""After the warm-up, no request with default options pays a compilation."""

import jax
import pytest

from bert_jax.serving.limits import ServerLimits
from bert_jax.serving.models import Models
from bert_jax.serving.service import Service


@pytest.fixture
def compiled():
    """The names of JAX's events: one for each program that is compiled."""
    names = []

    def listen(name, seconds, **more):
        if name.endswith("backend_compile_duration"):
            names.append(name)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield names
    jax.monitoring.unregister_event_duration_listener(listen)


@pytest.fixture
def masks(make_model):
    """A model with one shape for batches of one row."""
    return make_model("masked_lm", max_position_embeddings=16)


@pytest.mark.slow
def test_no_request_compiles(serve, masks, compiled):
    client = serve({"masks": masks}, warm_up=True, batch_size=1)
    warm = len(compiled)
    assert warm > 0
    for path, body in (
        ("/embed", {"inputs": "a dog"}),
        ("/embed", {"inputs": ["a", "a dog"], "normalize": False, "prompt_name": "query"}),
        ("/embed_all", {"inputs": "a dog"}),
        ("/embed_sparse", {"inputs": "a dog"}),
        ("/similarity", {"inputs": {"source_sentence": "a", "sentences": ["a dog"]}}),
        ("/attentions", {"records": ["a dog"]}),
        ("/fill_mask", {"records": ["a [MASK]", "[MASK] [MASK]"], "options": {"top_k": 20}}),
        ("/", {"inputs": "a [MASK]", "parameters": {"top_k": 1}}),
        ("/rerank", {"query": "a", "texts": ["a dog", "the cat"]}),
        ("/tasks/similarity", {"records": [{"sentence1": "a", "sentence2": "the"}]}),
    ):
        answer = client.post(path, json=body)
        assert answer.status_code == 200, answer.text
        assert len(compiled) == warm, path


def test_it_is_of_some_tasks_and_stops(masks, capsys):
    limits = ServerLimits(batch_size=1)
    service = Service(Models({"masks": masks}, limits), limits)
    service.warm_up(["fill_mask", "tagging"])
    service.warm_up(["fill_mask"], stopped=lambda: True)
    service.close()
    assert capsys.readouterr().err == "masks: compiling fill_mask for 1 shapes, 1 of 1\n"
