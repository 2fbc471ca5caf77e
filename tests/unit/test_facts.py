"""Facts that a model extracts, and their ingestion."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from openai.lib._pydantic import to_strict_json_schema
from pydantic import ValidationError

from memfold.client import queries
from memfold.client.facts import EXTRACTION_PROMPT, Fact, Facts


def test_a_fact_is_arguments_of_ingest() -> None:
    fact = Fact(
        content=" Alice lives in Lyon. ", subject="Alice", predicate="lives_in", object="Lyon", memory_type="fact",
        observed_at=datetime(2025, 9, 1, tzinfo=UTC), confidence=0.9,
    )  # fmt: skip
    made = fact.arguments(source_turn_ids=["turn-12"], bucket_id=None)
    assert made == {
        "content": "Alice lives in Lyon.", "subject": "Alice", "predicate": "lives_in", "object": "Lyon",
        "memory_type": "fact", "observed_at": datetime(2025, 9, 1, tzinfo=UTC), "extractor_confidence": 0.9,
        "source_turn_ids": ["turn-12"],
    }  # fmt: skip
    assert set(made) <= set(queries.CANDIDATE)
    assert fact.arguments(extractor_confidence=0.5)["extractor_confidence"] == 0.5


def test_empty_fields_are_left_out() -> None:
    answer = '{"facts": [{"content": "It rains.", "subject": "", "predicate": null, "object": " ", "observed_at": ""}]}'
    assert [fact.arguments() for fact in Facts.model_validate_json(answer).facts] == [
        {"content": "It rains."}
    ]


@pytest.mark.parametrize(
    "answer",
    [
        '{"content": " "}',
        '{"subject": "Alice"}',
        '{"content": "a", "confidence": 2}',
        '{"content": "a", "more": 1}',
    ],
)
def test_invalid_facts_are_refused(answer: str) -> None:
    with pytest.raises(ValidationError):
        Fact.model_validate_json(answer)


def test_the_schema_is_one_that_endpoints_take() -> None:
    """Strict structured output: every member required, no other ones, and no keyword that is refused."""
    schema = to_strict_json_schema(Facts)
    fact = schema["$defs"]["Fact"]
    assert set(fact["required"]) == set(Fact.model_fields)
    assert (fact["additionalProperties"], schema["additionalProperties"]) == (False, False)
    assert not re.search(r"minLength|maxLength|default", str(schema))


def test_the_prompt_names_what_makes_a_slot() -> None:
    assert {"subject", "predicate", "object", "observed_at"} <= set(
        re.findall(r"^- (\w+):", EXTRACTION_PROMPT, re.M)
    )
