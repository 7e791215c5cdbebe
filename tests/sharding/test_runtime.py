"""Whether the machine has a TPU, by its PCI devices."""

import pytest

from bert_jax.sharding.runtime import has_tpu


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ([], False),
        ([("0x10de", "0x2335")], False),  # a GPU
        ([("0x1ae0", "0x0042")], False),  # Google's network card
        ([("0x1ae0", "0x0042"), ("0x1ae0", "0x0063")], True),  # a v5e
    ],
)
def test_devices_of_google_s(tmp_path, devices, expected):
    for number, (vendor, device) in enumerate(devices):
        directory = tmp_path / f"0000:00:0{number}.0"
        directory.mkdir()
        (directory / "vendor").write_text(f"{vendor}\n")
        (directory / "device").write_text(f"{device}\n")
    assert has_tpu(tmp_path) == expected
