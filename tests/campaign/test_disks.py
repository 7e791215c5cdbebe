"""A few disks that fail; `python -m tests.campaign.disks` makes as many as one likes."""

import pytest

from tests.campaign.disks import Campaign
from tests.campaign.processes import layer

pytestmark = pytest.mark.slow


@pytest.mark.skipif(layer() is None, reason="needs Linux and a C compiler")
def test_disks_that_fail_end_in_one_line_and_lose_nothing(tmp_path):
    campaign = Campaign(tmp_path, 0, ["prepare", "export"])
    campaign.run(6)
    assert campaign.findings == []
    assert campaign.tries.total() == 6
