"""A few damaged files of every kind; `python -m tests.campaign.fuzz` makes as many as one likes."""

import pytest

from tests.campaign.fuzz import Campaign

pytestmark = pytest.mark.slow


def test_damaged_files_are_read_or_refused():
    campaign = Campaign(["safetensors", "pickle", "tokenizer.json", "squad", "csv", "overrides"])
    for name in campaign.names:
        campaign.run_batch(name, 0, cases=200)
    assert list(campaign.findings.values()) == []
    assert min(campaign.cases.values()) == 200
