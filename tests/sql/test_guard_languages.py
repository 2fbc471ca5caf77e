"""The guard in languages without a table of synonyms, and the person that a text is about."""

from __future__ import annotations

import pytest

from tests.support.judging import guard
from tests.support.queries import DB


@pytest.mark.parametrize(
    ("a", "b", "signal"),
    [
        # a word for another one that is not a form of it
        ("Der Nachbar füttert die Ente.", "Der Nachbar füttert die Gans.", "substitution: ente <> gans"),
        ("Le voisin nourrit le canard.", "Le voisin nourrit le cygne.", "substitution: canard <> cygne"),
        ("Il vicino nutre la papera.", "Il vicino nutre la gallina.", "substitution: papera <> gallina"),
        ("De buurman voert de eend.", "De buurman voert de gans.", "substitution: eend <> gans"),
        ("Sąsiad karmi kaczkę.", "Sąsiad karmi łabędzia.", "substitution: kaczkę <> łabędzia"),
        # the past is not a form of the present
        ("La vecina trabaja en el banco.", "La vecina trabajaba en el banco.", "substitution: trabaja <> trabajaba"),
        ("Die Nachbarin arbeitet bei der Bank.", "Die Nachbarin arbeitete bei der Bank.",
         "substitution: arbeitet <> arbeitete"),
        ("Соседка работает в банке.", "Соседка работала в банке.", "substitution: работает <> работала"),
        ("Die Halle ist kalt.", "Die Halle war kalt.", "tense: war"),
        # one word more that changes the fact
        ("Die Nachbarin ist Richterin.", "Die Nachbarin ist ehemalige Richterin.", "tense: ehemalige"),
        ("La voisine a fini son livre.", "La voisine a presque fini son livre.", "quantity: presque"),
        ("La vicina compra la barca.", "La vicina forse compra la barca.", "mode: forse"),
        ("Соседка курит.", "Соседка бросила, курит.", "tense: бросила"),
        # prepositions, and who does what
        ("Elle a parlé avec le maire.", "Elle a parlé contre le maire.", "substitution: avec <> contre"),
        ("Одолжил соседке лодку", "Одолжил у соседки лодку", "order: одолжил соседке лодку <> одолжил у соседки лодку"),
        ("Il suo socio è Ugo Rana.", "È il socio di Ugo Rana.", "order: il suo socio è ugo rana <> è il socio di ugo rana"),
    ],
)  # fmt: skip
def test_differences_are_raised(db: DB, a: str, b: str, signal: str) -> None:
    assert guard(db, a, b) == [signal]
    assert guard(db, b, a) != []


@pytest.mark.parametrize(
    ("a", "b"),
    [
        # number, gender and case
        ("Die Nachbarin hat kleine Enten.", "Die Nachbarin hat die kleinen Enten."),
        ("Il vicino ha il gatto nero.", "Il vicino ha i gatti neri."),
        ("El vecino tiene el gato negro.", "El vecino tiene los gatos negros."),
        ("Сосед продаёт гусям корм.", "Сосед продаёт гусю корм."),
        # synonyms that ship
        ("Die Nachbarin wohnt am Hafen.", "Die Nachbarin lebt am Hafen."),
        ("La voisine habite au port.", "La voisine vit au port."),
        # a word more is more detail
        ("Le voisin nourrit le canard.", "Le voisin nourrit le canard gris."),
        # where something is
        ("Die Ente wohnt im Schilf.", "Die Ente wohnt in Schilf."),
    ],
)
def test_paraphrases_pass(db: DB, a: str, b: str) -> None:
    assert guard(db, a, b) == guard(db, b, a) == []


@pytest.mark.parametrize(
    ("a", "b", "signal"),
    [
        ("她在公园喂鸭子", "她在公园喂天鹅", "substitution: 鸭子 <> 天鹅"),
        ("公園で鴨を見る", "公園で鷺を見る", "substitution: 鴨 <> 鷺"),
        ("ラーメンが好き", "カレーが好き", "name: ラーメン <> カレ"),
        ("이웃이 오리를 본다", "이웃이 백조를 본다", "substitution: 오리 <> 백조"),
        ("她去京都", "她打算去京都", "mode: 打算"),
        ("公園で鴨を見る", "公園で鴨を見た", "tense: た"),
        ("在公园喂鸭子", "奶奶在公园喂鸭子", "pronoun: 奶奶"),
        ("她的老师是陈明", "她是陈明的老师", "order: 她的老师是陈明 <> 她是陈明的老师"),
        ("她批评陈明", "她被陈明批评", "order: 被"),
    ],
)
def test_scripts_without_spaces(db: DB, a: str, b: str, signal: str) -> None:
    assert guard(db, a, b) == [signal]
    assert guard(db, b, a) != []


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("她的老师是陈明", "陈明是她的老师"),
        ("她住在公园边", "她居住在公园边"),
        ("公園で鴨を見る", "公園で鴨を見ます"),
        ("她在公园喂鸭子", "她在大公园喂鸭子"),
    ],
)
def test_scripts_without_spaces_pass(db: DB, a: str, b: str) -> None:
    assert guard(db, a, b) == guard(db, b, a) == []


def test_english_uses_the_lexicon(db: DB) -> None:
    """Its synonyms pass, and words such as "former" are recognized in English, with or without names and rare words
    next to them."""
    a, b = "The physician feeds ducks at Łódź Główny.", "The doctor feeds ducks at Łódź Główny."
    assert guard(db, a, b) == []
    # unknown words
    assert guard(db, "Uses kubectl at work", "Uses helmfile at work") == ["substitution: kubectl <> helmfile"]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Works at night", "His sister works at night"),
        ("Works at night", "Landlord works at night"),
        ("Trabaja de noche", "Su hermana trabaja de noche"),
        ("Travaille la nuit", "Sa mère travaille la nuit"),
    ],
)
def test_pronouns_of_different_persons(db: DB, a: str, b: str) -> None:
    assert [signal.split(":")[0] for signal in guard(db, a, b)] == ["pronoun"]
    assert [signal.split(":")[0] for signal in guard(db, b, a)] == ["pronoun"]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        # she has the name
        ("Ann works at night", "His sister Ann works at night"),
        # the text is not about her
        ("Works at night", "Works at night with his sister"),
    ],
)
def test_pronouns_of_the_same_person(db: DB, a: str, b: str) -> None:
    assert guard(db, a, b) == guard(db, b, a) == []


def test_a_tenant_has_its_synonyms(db: DB) -> None:
    """Every rule treats synonyms as one word: names and identifiers too, not only substituted words."""
    a, b = "Deploys k8s to prod on Mondays.", "Deploys Kubernetes to production on Mondays."
    assert guard(db, a, b) != []
    db.execute("select set_config('memfold.tenant_id', 'acme', false)")
    db.execute(
        "insert into memfold.antonyms (tenant_id, word, antonym, kind) values"
        " ('acme', 'k8s', 'kubernetes', 'synonym'), ('acme', 'production', 'prod', 'synonym')"
    )
    assert guard(db, a, b) == guard(db, b, a) == []
    assert guard(db, a, b, tenant_id="other") != []
    # a word has one synonym
    assert guard(db, a, "Deploys Kubernetes and Kubernetes to production on Mondays.") == ["name: kubernetes"]
    assert guard(db, a, "Deploys Kubernetes to production on 3 Mondays.") == ["numeral: 3"]


def test_a_synonym_goes_before_an_antonym(db: DB) -> None:
    a, b = "Deploys use the old ring.", "Deploys use the new ring."
    assert guard(db, a, b) == ["antonym: old <> new"]
    db.execute("select set_config('memfold.tenant_id', 'acme', false)")
    db.execute(
        "insert into memfold.antonyms (tenant_id, word, antonym, kind) values ('acme', 'old', 'new', 'synonym')"
    )
    assert guard(db, a, b) == []
    assert guard(db, a, b, tenant_id="other") == ["antonym: old <> new"]


def test_a_phrase_is_a_synonym_where_words_have_no_spaces(db: DB) -> None:
    a, b = "她在公园喂鸭子", "她在公园喂水禽"
    assert guard(db, a, b) != []
    db.execute("select set_config('memfold.tenant_id', 'acme', false)")
    db.execute(
        "insert into memfold.antonyms (tenant_id, word, antonym, kind) values ('acme', '鸭子', '水禽', 'synonym')"
    )
    assert guard(db, a, b) == guard(db, b, a) == []
