"""Recall of what a query is about, loosely pinned: bench/recall.py prints the figures."""

from __future__ import annotations

import pytest

from tests.support import labelled_queries
from tests.support.queries import DB

# measured: 0.764 by words, 0.837 by those of English, 0.986 by vector, 0.981 by both
LEAST = {"words": 0.7, "vector": 0.95, "both": 0.95}


@pytest.mark.one_server
def test_recall_finds_the_topic_of_a_query(db: DB) -> None:
    labelled_queries.load(db)
    found = {way: labelled_queries.hits(db, way) for way in LEAST}
    assert {way: share for way, share in found.items() if share < LEAST[way]} == {}
    # by the stems of a language more than by the words as they are
    db.execute("select memfold.set_options('acme', text_search => 'english')")
    assert labelled_queries.hits(db, "words") > found["words"]
