"""memfold calibrate and memfold review --label: from a file to thresholds in force, and what a person answers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from psycopg.conninfo import make_conninfo

from memfold.client.errors import CalibrationRefusedError, MemfoldError, UnknownModelError
from memfold.tools.calibrate import calibrate
from memfold.tools.calibrate.pairs import feature_names
from memfold.tools.calibrate.score import Score
from memfold.tools.cli import main
from tests.support.calibration import APART, OVERLAPPING
from tests.support.memories import ingest, model, vector
from tests.support.queries import DB

# Python: tests/sql/test_labelled_pairs.py covers the database on each server.
pytestmark = pytest.mark.one_server
Run = Callable[..., Result]


@pytest.fixture
def run(db: DB, dsn: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.setenv("MEMFOLD_DSN", dsn)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    model(db)

    def invoke(*arguments: str | Path, lines: str | None = None) -> Result:
        result = CliRunner().invoke(main, [str(argument) for argument in arguments], input=lines)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    return invoke


def written(path: Path, seed: int = 0, **classes: tuple[int, float, float]) -> Path:
    """Pairs of texts on which the guard raises nothing, with cosines around a mean."""
    random = np.random.default_rng(seed)
    lines = [
        {"label": label, "cosine": c, "a": f"the {label} is a thing of {word(i)}", "b": f"some {label} for {word(i)}"}
        for label, (count, mean, deviation) in classes.items()
        for i, c in enumerate(np.clip(random.normal(mean, deviation, count), -1, 1).round(6))
    ]  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def word(number: int) -> str:
    """A different word for each number, without a digit."""
    return "w" + "".join(chr(ord("a") + int(digit)) for digit in f"{number:04d}") + "q"


def thresholds(db: DB) -> Any:
    return db.execute(
        "select merge_threshold, judge_threshold, calibration_id from embedding_models"
    ).fetchone()


def test_from_a_file_to_thresholds_in_force(db: DB, run: Run, tmp_path: Path) -> None:
    file = written(tmp_path / "pairs.jsonl", **APART)
    done = run("calibrate", "m", "--tenant", "acme", "--pairs", file, "--report", "r.html", "--apply")
    assert done.exit_code == 0, done.output
    assert "1000 pairs of pairs.jsonl are stored" in done.stderr
    row = db.execute(
        "select calibration_id, merge_threshold, judge_threshold, report, length(fingerprint), created_by, method"
        " from calibrations"
    ).fetchone()
    assert row is not None
    assert thresholds(db) == (row[1], row[2], row[0])
    assert f"calibration {row[0]} of m, by cosine, method budget" in done.stdout
    assert row[3]["pairs"]["by_label"] == {"duplicate": 400, "distinct": 300, "contradiction": 300}
    assert row[3]["held_out"]["with_guard"]["false_merge"] == {
        "count": 0, "of": 120, "rate": 0, "low": 0, "high": pytest.approx(0.0303, abs=1e-4),
    }  # fmt: skip
    assert row[4:] == (32, "postgres", "budget")
    assert "the duplicate is" not in json.dumps(row[3])
    assert "<svg" in (tmp_path / "r.html").read_text()
    undone = run("calibrate", "m", "--undo")
    assert "m now uses no calibration" in undone.output
    assert thresholds(db) == (0.92, 0.85, None)
    assert "MF043" in run("calibrate", "m", "--undo").output
    # the same data, another day
    again = run("calibrate", "m")
    assert again.exit_code == 0, again.output
    assert db.execute("select count(*), count(distinct fingerprint) from calibrations").fetchone() == (2, 1)
    assert thresholds(db) == (0.92, 0.85, None)


def test_a_fitted_score_in_force(db: DB, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the features in SQL to a function in SQL, which returns what the model returned."""
    monkeypatch.setattr("memfold.tools.calibrate.score.MAX_TREES", 8)
    file = written(tmp_path / "pairs.jsonl", **APART)
    arguments = ("calibrate", "m", "--tenant", "acme", "--pairs", file, "--score", "fitted", "--apply")
    unread = run(*arguments)
    assert (unread.exit_code, "--score fitted --apply needs --replay" in unread.output) == (2, True)
    assert "--replay needs --tenant" in run("calibrate", "m", "--replay", "default").output
    ingest(db, "Drinks tea", **vector(1))
    ingest(db, "Drinks tea every day", **vector(0.7))
    ingest(db, "Owns a red car", **vector(0.1))
    done = run(*arguments, "--replay", "default")
    assert done.exit_code == 0, done.output
    assert re.search(r"by the current rules +3 +0 +0 +3", done.stdout)
    assert re.search(r"by this calibration +3 +\d +\d +\d", done.stdout)
    assert db.execute("select count(*) from memories").fetchone() == (3,)
    row = db.execute(
        "select c.calibration_id, c.score::text, m.score_function, m.candidate_threshold, m.merge_threshold"
        " from embedding_models as m join calibrations as c using (calibration_id)"
    ).fetchone()
    assert row is not None
    assert row[2] == f"_score_{row[0].hex}"
    assert 0.8 <= row[3] <= 0.9
    assert row[4] == thresholds(db)[0]
    score = Score.from_json(row[1])
    found = db.execute(
        f"select f.features, memfold_internal.{row[2]}(f.features)"
        " from labelled_pairs as l, lateral (select memfold_internal._pair_features("
        "(l.similarities ->> 'm')::float8, l.content_a, l.content_b, '{}') as features) as f"
        " order by l.pair_key limit 100".encode()
    ).fetchall()
    features, said = np.array([one[0] for one in found]), np.array([one[1] for one in found])
    assert score.names == tuple(feature_names(db))
    assert np.abs(score.predict(features) - said).max() < 1e-6
    assert said.max() - said.min() > 0.2
    assert run("calibrate", "m", "--undo").exit_code == 0
    assert db.execute("select score_function from embedding_models").fetchone() == (None,)


def test_refusals(db: DB, run: Run, tmp_path: Path) -> None:
    options = ("calibrate", "m", "--tenant", "acme", "--pairs")
    none = run("calibrate", "m")
    assert (none.exit_code, "MF044: there are no labelled pairs" in none.output) == (1, True)
    forty = written(
        tmp_path / "a", duplicate=(10, 0.9, 0.02), contradiction=(20, 0.5, 0.1), distinct=(10, 0.4, 0.1)
    )
    few = run(*options, forty)
    assert few.exit_code == 1
    assert "374 pairs that are not duplicates (there are 30) and 74 duplicates (there are 10)" in few.output
    db.execute("delete from labelled_pairs")
    missing = run(*options, written(tmp_path / "b", duplicate=APART["duplicate"], distinct=(500, 0.4, 0.1)))
    assert missing.exit_code == 1
    assert "contradictions are missing" in missing.output
    db.execute("delete from labelled_pairs")
    overlap = run(*options, written(tmp_path / "c", **OVERLAPPING), "--report", "r.html")
    assert overlap.exit_code == 1
    assert "MF044: the budget cannot be met" in overlap.output
    assert re.search(
        r"With false merges of 1.0% and false keeps of 5.0%, \d\d\.\d% must be asked", overlap.output
    )
    assert "<b>Refused.</b>" in (tmp_path / "r.html").read_text()
    assert db.execute("select count(*) from calibrations").fetchone() == (0,)


def test_the_percentile_recipe_warns(db: DB, run: Run, tmp_path: Path) -> None:
    done = run(
        "calibrate", "m", "--tenant", "acme", "--method", "percentile", "--pairs",
        written(tmp_path / "pairs.jsonl", **OVERLAPPING),
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "warning: the recipe misses its target" in done.stderr
    row = db.execute("select method, report -> 'warnings' from calibrations").fetchone()
    assert row is not None
    assert row[0] == "percentile"
    assert len(row[1]) >= 2


def test_weak_pairs_and_pairs_without_a_cosine_are_left_out(
    db: DB, dsn: str, run: Run, tmp_path: Path
) -> None:
    file = written(tmp_path / "pairs.jsonl", **APART)
    assert run("calibrate", "m", "--tenant", "acme", "--pairs", file).exit_code == 0
    db.execute("select add_labelled_pair('x', 'y', 'distinct', 'acme')")
    db.execute("update labelled_pairs set weak = true where label = 'distinct' and content_a like '%waaab%'")
    made = calibrate(dsn, "m", store=False)
    assert (len(made.pairs), made.left_out) == (999, {"without_cosine": 1, "weak": 1})
    assert len(calibrate(dsn, "m", weak=True, store=False).pairs) == 1000
    with pytest.raises(CalibrationRefusedError) as error:
        calibrate(dsn, "m", tenant_id="globex")
    assert error.value.reason == "no_pairs"
    with pytest.raises(UnknownModelError):
        calibrate(dsn, "unknown")
    assert calibrate(db, "m").calibration_id is not None


def test_the_application_may_not(db: DB, dsn: str, run: Run, tmp_path: Path) -> None:
    run("calibrate", "m", "--tenant", "acme", "--pairs", written(tmp_path / "pairs.jsonl", **APART))
    db.execute("create role calibrating login in role memfold_app")
    try:
        with pytest.raises(MemfoldError) as error:
            calibrate(make_conninfo(dsn, user="calibrating"), "m", tenant_id="acme")
        assert error.value.sqlstate == "42501"
    finally:
        db.execute("drop role calibrating")


def test_usage(run: Run, tmp_path: Path) -> None:
    file = written(tmp_path / "pairs.jsonl", distinct=(1, 0.5, 0.1))
    for arguments in (
        ("calibrate", "m", "--pairs", file),
        ("calibrate", "m", "--judge"),
        ("calibrate", "m", "--judge-model", "x"),
        ("calibrate", "m", "--max-false-merge", "0"),
        ("review", "--label", "--tenant", "acme"),
        ("review", "--label", "--embedding-model", "m"),
        ("review", "--tenant", "acme", "--embedding-model", "m"),
    ):
        assert run(*arguments).exit_code == 2, arguments
    unknown = run("calibrate", "unknown", "--tenant", "acme", "--pairs", file)
    assert (unknown.exit_code, "MF013" in unknown.output) == (1, True)
    file.write_text("{}\n")
    broken = run("calibrate", "m", "--tenant", "acme", "--pairs", file)
    assert (broken.exit_code, "pairs.jsonl:1" in broken.output) == (1, True)


def test_pairs_without_a_cosine_are_embedded(
    db: DB, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text(
        '{"a": "aa", "b": "b", "label": "distinct"}\n{"a": "c", "b": "d", "label": "duplicate", "cosine": 0.9}\n'
    )
    asked: list[str] = []

    class Endpoint:
        def __init__(self, name: str, url: str | None) -> None:
            asked.append(f"{name} at {url}")

        def embed(self, texts: list[str]) -> list[list[float]]:
            asked.extend(texts)
            return [[2.0 * len(text), 2.0] for text in texts]

    monkeypatch.setattr("memfold.tools.cli._embedding.OpenAIEmbedder", Endpoint)
    run("calibrate", "m", "--tenant", "acme", "--pairs", file, "--embed-url", "http://x/v1")
    assert asked == ["m at http://x/v1", "aa", "b"]
    found = db.execute(
        "select content_a, (similarities ->> 'm')::float8 from labelled_pairs order by 1"
    ).fetchall()
    assert found == [("aa", pytest.approx(3 / np.sqrt(10), abs=1e-6)), ("c", 0.9)]


JUDGE = """
from memfold.client.judging import Answer

class Sceptic:
    model = "sceptic"

    async def judge(self, question):
        return Answer("distinct", 0.9)
"""


def test_the_judge_is_measured(db: DB, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sceptics.py").write_text(JUDGE)
    monkeypatch.syspath_prepend(str(tmp_path))
    file = written(tmp_path / "pairs.jsonl", **OVERLAPPING)
    done = run(
        "calibrate", "m", "--tenant", "acme", "--pairs", file, "--max-escalation", "0.8", "--judge",
        "--judge-object", "sceptics:Sceptic", "--max-judged", "60",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    row = db.execute("select report -> 'judge' from calibrations").fetchone()
    assert row is not None
    judged = row[0]
    assert (judged["model"], judged["asked"]) == ("sceptic", 60)
    assert judged["by_label"]["distinct"]["wrong"]["count"] == 0
    assert judged["by_label"]["duplicate"]["wrong"]["rate"] == 1
    assert judged["wrong"]["count"] == sum(one["wrong"]["count"] for one in judged["by_label"].values())
    assert "judge sceptic:" in done.stdout


# a person ---------------------------------------------------------------------------------------------------


def stored(db: DB) -> dict[str, tuple[str, str]]:
    rows = db.execute("select content_a, label, origin from labelled_pairs order by content_a").fetchall()
    return {a.split()[0]: (label, origin) for a, label, origin in rows}


@pytest.fixture
def folded(db: DB, run: Run) -> None:
    """Four automatic merges; the band is 0.85 to 0.92."""
    db.execute("select set_policy('acme', merge_threshold => 0.5, judge_threshold => 0.5)")
    for name, cosine in (("Far", 0.6), ("Edge", 0.91), ("Middle", 0.885), ("Above", 0.97)):
        for end, near in (("b", 1.0), ("a", cosine)):
            ingest(db, f"{name} {end}", subject=name, **vector(near))


def test_a_person_labels_the_most_informative_first(db: DB, run: Run, folded: None) -> None:
    before = db.execute("select count(*) from memory_events").fetchone()
    done = run("review", "--label", "--embedding-model", "m", "--tenant", "acme", lines="d\nc\n?\ns\nk\n")
    assert done.exit_code == 0, done.output
    assert "4 pairs found in past decisions" in done.output
    shown = re.findall(r"(Edge|Middle|Above|Far) (?:\[-a-\]|a) ", done.output)
    assert shown == ["Edge", "Middle", "Above", "Far"]
    assert "tenant acme, merge: duplicate?, similarity 0.910" in done.output
    assert "nothing more to label: 3 labels (1 contradiction, 1 distinct, 1 duplicate)" in done.output
    assert stored(db) == {
        "Above": ("duplicate", "collected"), "Edge": ("duplicate", "labelled"), "Far": ("distinct", "labelled"),
        "Middle": ("contradiction", "labelled"),
    }  # fmt: skip
    assert db.execute("select count(*) from memory_events").fetchone() == before
    # what was answered is not asked again, what was skipped is
    again = run("review", "--label", "--embedding-model", "m", "--tenant", "acme", lines="q\n")
    assert "Above" in again.output
    assert "Edge" not in again.output
    assert "stopped: 0 labels" in again.output


def test_a_label_is_undone(db: DB, run: Run, folded: None) -> None:
    done = run("review", "--label", "--embedding-model", "m", "--tenant", "acme", lines="u\nd\nu\nr\nq\n")
    assert "there is no label to undo" in done.output
    assert "stopped: 1 label (1 refinement)" in done.output
    assert stored(db)["Edge"] == ("refinement", "labelled")
    run("review", "--label", "--embedding-model", "m", "--tenant", "acme", lines="d\nu\nq\n")
    assert "Middle" not in stored(db)
    # found again
    assert (
        "4 pairs found"
        in run("review", "--label", "--embedding-model", "m", "--tenant", "acme", lines="").output
    )
    assert stored(db)["Middle"] == ("duplicate", "collected")
