"""A service of a small model, and a client without a network."""

import contextlib

import pytest
from starlette.testclient import TestClient

from bert_jax.serving.app import make_app
from bert_jax.serving.limits import ServerLimits
from bert_jax.serving.models import Models
from bert_jax.serving.service import Service


@pytest.fixture(scope="session")
def serve():
    """A client of a service with these models and limits, which is closed at the end."""
    with contextlib.ExitStack() as stack:

        def start(models, index=None, app_options=None, *, warm_up=False, **limits):
            chosen = ServerLimits(**{"batch_size": 4, **limits})
            service = Service(Models(models, chosen, index), chosen)
            stack.callback(service.close)
            if warm_up:
                service.warm_up()
            app = make_app(service, access_log=False, **(app_options or {}))
            return TestClient(app, raise_server_exceptions=False)

        yield start


@pytest.fixture(scope="session")
def encoder(make_model):
    """An encoder without files that say how vectors are made: the mean of its tokens."""
    return make_model("encoder")


@pytest.fixture(scope="session")
def client(serve, encoder):
    """A client of one encoder, which takes small requests."""
    return serve({"tiny": encoder}, max_texts=8, max_tokens=100, max_bytes=2000)
