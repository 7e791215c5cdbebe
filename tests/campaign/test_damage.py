"""Every file of some directories damaged once; `python -m tests.campaign.damage` does more."""

import pytest

from tests.campaign.damage import Plan, campaign

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """The place of the campaign, whose materials are made once."""
    return tmp_path_factory.mktemp("damage")


def test_damaged_files_are_named_or_harmless(root):
    tries = campaign(root, Plan(1, 0), ["corpus", "model"])
    assert len(tries) > 100
    assert [done for done in tries if done.outcome not in ("refused", "harmless")] == []


def test_nothing_waits_for_a_pipe_in_an_unfinished_run_or_among_googles_files(root):
    tries = campaign(root, Plan(0, 0, ("pipe",)), ["unfinished", "google"])
    assert len([done for done in tries if done.outcome == "refused"]) > 15
    assert [done for done in tries if done.outcome not in ("refused", "harmless")] == []
