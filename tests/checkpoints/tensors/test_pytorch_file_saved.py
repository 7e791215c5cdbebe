"""Files that PyTorch itself saves, in both layouts, are read bit by bit."""

import pytest

from bert_jax.checkpoints.tensors.pytorch_file import PytorchFile
from bert_jax.errors import UserError

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.slow

layouts = pytest.mark.parametrize("new", [True, False], ids=["zip", "legacy"])


def check(path, tensors):
    with PytorchFile(path) as file:
        assert list(file.tensors) == list(tensors)
        for name, expected in tensors.items():
            array = file.read(name)
            assert array.shape == tuple(expected.shape), name
            assert str(array.dtype) == str(expected.dtype).removeprefix("torch."), name
            bits = expected.detach().contiguous().flatten().view(torch.uint8).numpy()
            assert array.tobytes() == bits.tobytes(), name


@pytest.fixture
def path(tmp_path):
    return tmp_path / "pytorch_model.bin"


@layouts
def test_every_dtype_shared_storages_and_strides(path, new):
    bits = torch.randint(0, 256, (24,), dtype=torch.uint8, generator=torch.manual_seed(3))
    dtypes = ["float16", "bfloat16", "float32", "float64", "int64", "int32", "int16", "int8"]
    tensors = {name: bits.clone().view(getattr(torch, name)) for name in dtypes}
    tensors |= {"uint8": bits, "bool": bits > 99, "scalar": torch.tensor(7.0)}
    tensors |= {"none": torch.empty(0, 3), "position_ids": torch.arange(5).expand((1, -1))}
    base = torch.arange(120.0).reshape(2, 3, 4, 5)
    tensors |= {
        "base": base,
        "transposed": base.permute(3, 1, 0, 2),
        "slice": base[1:, :2, 1:3, ::2],
        "half_of_another": base.half()[..., 2],
        "repeated": base[0, 0, 0, :1].expand(6),
        "parameter": torch.nn.Parameter(base[0, 0].T),
    }
    torch.save(tensors, path, _use_new_zipfile_serialization=new)
    check(path, tensors)


@layouts
@pytest.mark.parametrize("protocol", [2, 5])
def test_the_state_dict_of_a_module(path, new, protocol):
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16)
    state = layer.state_dict()
    assert state._metadata
    torch.save(state, path, _use_new_zipfile_serialization=new, pickle_protocol=protocol)
    check(path, state)


@layouts
@pytest.mark.parametrize(
    ("saved", "expected"),
    [
        (lambda: torch.nn.Linear(2, 2), r"asks for torch\.nn\.modules\.linear\.Linear, which"),
        (lambda: {"epoch": 3, "state_dict": {}}, "entry 'epoch' is not a tensor but a int"),
        (lambda: [torch.ones(2)], "holds no dict of tensors but a list"),
        (lambda: {"a": torch.ones(2).to_sparse()}, r"asks for torch\._utils\._rebuild_sparse_te"),
        (lambda: {"a": torch.ones(2, dtype=torch.complex64)}, r"asks for torch\.ComplexFloatSt"),
        (lambda: {"a": torch.ones(2, dtype=torch.uint16)}, r"_rebuild_tensor_v3, which no file"),
    ],
    ids=["module", "checkpoint", "list", "sparse", "complex", "uint16"],
)
def test_what_is_refused(path, new, saved, expected):
    torch.save(saved(), path, _use_new_zipfile_serialization=new)
    with pytest.raises(UserError, match=expected):
        PytorchFile(path)


def test_torchscript_is_refused(path):
    torch.jit.script(torch.nn.Linear(2, 2)).save(str(path))
    with pytest.raises(UserError, match="is a TorchScript program; nothing in it was run"):
        PytorchFile(path)
