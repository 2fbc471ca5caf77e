"""What the guard detects if two English texts have almost the same words: who does what, when, and how much."""

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
        ("order", "Was trained by the captain", "Trained the captain"),
        ("order", "Is guided by the ranger", "Guides the ranger"),
        ("relation", "Switched from rowing to cycling", "Moved from cycling to rowing"),
        ("pronoun", "I teach you chess", "You teach me chess"),
        ("pronoun", "Feeds his neighbour's geese", "Feeds his geese"),
        ("pronoun", "Blames himself for the leak", "Blames him for the leak"),
        ("relation", "Cycles to the harbour", "Cycles from the harbour"),
        ("relation", "The parcel was sent to Otto", "The parcel was sent by Otto"),
        ("relation", "Bought the canoe for Otto", "Bought the canoe from Otto"),
        ("relation", "Stayed at home because of the heat", "Stayed at home despite the heat"),
        ("relation", "Waits until lunch", "Waits during lunch"),
        ("relation", "Cycles if it rains", "Cycles even if it rains"),
        # about whom
        ("pronoun", "Her sister rows", "Her sister's trainer rows"),
        ("pronoun", "Otto is allergic to nuts", "Otto's trainer is allergic to nuts"),
        ("pronoun", "Her brother rows", "Her brother-in-law rows"),
        ("pronoun", "Her sister rows", "Her stepsister rows"),
        ("pronoun", "Her grandmother rows", "Her great-grandmother rows"),
        ("mode", "Is the president of the club", "Is the vice president of the club"),
        ("mode", "Is a manager at the club", "Is an assistant manager at the club"),
        ("quantity", "The canoe is paid", "The canoe is partly paid"),
        ("quantity", "Suitable for alpine gardens", "Suitable for alpine or rock gardens"),
        ("mode", "Does the club rent canoes?", "The club rents canoes."),
        # in a text of few words
        ("substitution", "Plays violin", "Plays viola"),
        ("substitution", "Loves \U0001f355", "Loves \U0001f363"),
        # when
        ("relation", "The tent is free by Friday", "The tent is free after Friday"),
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
def test_differences_are_raised(db: DB, kind: str, a: str, b: str) -> None:
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
        # interchangeable small words
        ("Lives near the harbour", "Lives close to the harbour"),
        ("Stays at home because it rains", "Stays at home since it rains"),
        ("Is in the tent", "Is inside the tent"),
        # an apostrophe that was not typed
        ("I don't row", "i don t row"),
        ("I'm a ranger", "i m a ranger"),
        ("She'll row", "she ll row"),
        # a form of the verb that is not a past form
        ("Otto repairs bicycles at home", "Otto is repairing bicycles at home"),
        ("The bridge was built by Otto in May", "The bridge had been built by Otto in May"),
    ],
)
def test_paraphrases_pass(db: DB, a: str, b: str) -> None:
    assert guard(db, a, b) == guard(db, b, a) == []
