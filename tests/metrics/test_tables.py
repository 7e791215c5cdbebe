"""Names and columns on a terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.metrics.tables import aligned, shorten


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sun", "sun"),
        ("exactly10!", "exactly10!"),
        ("eleven char", "eleve…char"),
        ("a\tb\nc", "a b c"),
        ("北京大学", "北京大学"),
        ("北京大学北京大学", "北京…大学"),
        ("e\u0301" * 10, "e\u0301" * 10),
        ("สวัสดี", "สวัสดี"),
        ("", ""),
    ],
)
def test_shortened_names(name, expected):
    assert shorten(name, 10) == expected


def test_columns():
    assert aligned([["name", "n"], ["北京", "10"], ["e\u0301", "200"]]) == [
        "name    n",
        "北京   10",
        "e\u0301     200",
    ]
    assert aligned([["a", "bb", "1"], ["aa", "b", ""]], left=2) == ["a   bb  1", "aa  b"]


@given(st.text(st.sampled_from("ab \t\u200b京")), st.integers(3, 12))
def test_any_name_stays_short(name, width):
    short = shorten(name, width)
    assert len(short) + short.count("京") <= width
    assert short.isprintable()
    assert shorten(short, width) == short


@given(st.text())
def test_any_name_is_one_line(name):
    assert shorten(name).isprintable()
