"""A reader of queries with documents in files."""

import pytest

from bert_jax.data.readers.candidate_columns import RankingOptions
from bert_jax.data.readers.ranking import read_candidates


@pytest.fixture
def ranking(tmp_path):
    """Writes files and reads (query, documents, grades, scores, id) of the last one."""

    def read(*files, split="train", **options):
        for name, content in files:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(content)
        options = RankingOptions(directory=str(tmp_path), **options)
        examples = read_candidates(tmp_path / files[-1][0], options, split)
        return [
            (each.input.query, each.input.documents, each.label.grades, each.label.scores, each.id)
            for each in examples
        ]

    return read
