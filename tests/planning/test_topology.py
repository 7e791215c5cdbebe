"""Devices that are not here, and the compiler that knows them."""

import importlib.metadata

import pytest

from bert_jax.errors import UserError
from bert_jax.planning.hardware import parse_slice
from bert_jax.planning.topology import check_libtpu, find_topology


@pytest.mark.parametrize(
    ("name", "compiles"), [("h100:8", False), ("cpu:1", True), ("cpu:99", False)]
)
def test_stand_ins_are_as_many(name, compiles):
    topology = find_topology(parse_slice(name))
    assert len(topology.devices) == topology.slice.devices
    assert topology.compiles == compiles


def test_libtpu_is_missing(monkeypatch):
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(UserError, match=r'not installed; pip install "bert_jax\[tpu\]"$'):
        check_libtpu()


def test_libtpu_of_another_version(monkeypatch):
    versions = {"libtpu": "0.0.1", "jax": importlib.metadata.version("jax")}
    monkeypatch.setattr(importlib.metadata, "version", versions.__getitem__)
    message = r'libtpu 0.0.1 does not go with JAX [\d.]+, which needs ==.*; pip install "bert_jax'
    with pytest.raises(UserError, match=message):
        check_libtpu()
