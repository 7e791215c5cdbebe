"""Ids that appear twice."""

from bert_jax.data import unique_ids
from bert_jax.data.unique_ids import UniqueIds


def test_an_id_is_new_once(monkeypatch):
    monkeypatch.setattr(unique_ids, "_WAITING", 3)
    ids = UniqueIds()
    assert [ids.add(each) for each in "abcabda"] == [True, True, True, False, False, True, False]
    names = ["\ud83d", *map(str, range(1000))]  # also half of a character
    assert all(ids.add(each) for each in names)
    assert not any(ids.add(each) for each in names)
