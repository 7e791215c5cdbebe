"""A few kills of every kind; `python -m tests.campaign.kills` makes as many as one likes."""

import pytest

from tests.campaign.kills import Campaign

pytestmark = pytest.mark.slow


def test_killed_work_ends_as_undisturbed_work(tmp_path):
    campaign = Campaign(tmp_path, 0, ["pretrain", "prepare"])
    campaign.run(4)
    assert campaign.findings == []
    assert campaign.kills.total() >= 4
