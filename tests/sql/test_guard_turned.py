"""What the guard sees if two English texts have almost the same words: who does what, when, and how much."""

from __future__ import annotations

import pytest

from tests.support.judging import guard
from tests.support.queries import DB


@pytest.mark.parametrize(
    ("kind", "a", "b"),
    [
        # who does what
        ("order", "Lends tools to his brother", "His brother lends tools to him"),
        ("order", "Is fond of her landlady", "Her landlady is fond of her"),
        ("order", "Trains the nephew's horse", "The nephew trains the horse"),
        ("order", "Was trained by the captain", "Trained the captain"),
        ("order", "Is guided by the ranger", "Guides the ranger"),
        ("order", "Her mentor is the ranger", "Is the ranger's mentor"),
        ("order", "Switched from rowing to cycling", "Moved from cycling to rowing"),
        ("pronoun", "I teach you chess", "You teach me chess"),
        ("pronoun", "Feeds his neighbour's geese", "Feeds his geese"),
        ("pronoun", "Blames himself for the leak", "Blames him for the leak"),
        ("place", "Cycles to the harbour", "Cycles from the harbour"),
        # when
        ("time", "The tent is free by Friday", "The tent is free after Friday"),
        ("time", "The exam: in two weeks", "The exam: two weeks ago"),
        ("tense", "Repairs bicycles in the shed at home", "Repaired bicycles in the shed, not at home"),
        ("tense", "Is painting the fence", "Painted the fence"),
        ("tense", "Caught trout in the lake", "Catches trout in the lake"),
        ("tense", "Is a retired pilot", "Is a pilot"),
        # whether, and how much
        ("mode", "The fence is painted", "The fence is yet to be painted"),
        ("mode", "Cycles to the harbour", "Cycles to the harbour if it is dry"),
        ("mode", "Is the deputy mayor", "Is the mayor"),
        ("mode", "Tried to fix the pump", "Fixed the pump"),
        ("quantity", "Sometimes cycles to the harbour", "Cycles to the harbour"),
        ("quantity", "Rows better than Otto", "Rows as well as Otto"),
    ],
)
def test_what_is_raised(db: DB, kind: str, a: str, b: str) -> None:
    for signals in (guard(db, a, b), guard(db, b, a)):
        assert kind in {signal.split(":")[0] for signal in signals}


@pytest.mark.parametrize(
    ("a", "b"),
    [
        # the same in the passive
        ("The ranger guides the tours", "The tours are guided by the ranger"),
        ("Keeps the canoe in the shed", "The canoe is kept in the shed"),
        # what each is to the other
        ("Is Otto's cousin", "Otto is her cousin"),
        ("Her mentor is the ranger", "The ranger is her mentor"),
        # a list in another order, and what was said of both
        ("Pays for the canoe and the tent", "Pays for the tent and the canoe"),
        ("From the harbour, cycles to the lake", "Cycles from the harbour to the lake"),
        # a form of the verb that is not a past form
        ("Otto repairs bicycles at home", "Otto is repairing bicycles at home"),
        ("The bridge was built by Otto in May", "The bridge had been built by Otto in May"),
    ],
)
def test_what_passes(db: DB, a: str, b: str) -> None:
    assert guard(db, a, b) == guard(db, b, a) == []
