"""Take the pictures of docs/web.md: the page over the demo's memories, in a real browser.

DSN is an empty database with memfold in it (.venv/bin/memfold up --data DIR prints one). Needs Debian's chromium and
chromium-driver. The pictures show the page as it is; ids and times differ at each run.
"""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
from pathlib import Path

import psycopg
from PIL import Image
from selenium import webdriver
from selenium.webdriver.common.by import By

from memfold.client.embedding.anchors import ANCHORS

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support import browser  # noqa: E402
from tests.support.waiting import until  # noqa: E402
from tests.support.web_pages import served  # noqa: E402

TO = ROOT / "docs" / "web"
TENANT, MODEL, PILE = "demo", "all-MiniLM-L6-v2", "pile"
COLOURS = 48

RULES = """
select memfold.register_embedding_model('{model}', 384);
select memfold.set_predicate('lives_in', '{tenant}');
select memfold.set_policy('{tenant}', on_ambiguous => 'review');
select memfold.set_policy('{tenant}', '{pile}', merge_threshold => 1, judge_threshold => 1, on_ambiguous => 'insert');
"""
# Two texts that are equal to tier 1 are not a pair for tier 2.
DISTINCT_TEXTS = "select memfold.canonicalize(%s, 'prose/1') <> memfold.canonicalize(%s, 'prose/1')"
CALIBRATE = (
    "calibrate", MODEL, "--tenant", TENANT, "--score", "fitted", "--floor", "0.5",
    "--max-false-merge", "0.02", "--max-false-keep", "0.2",
)  # fmt: skip
# Of a slot with a history.
CHANGED = """
select i.memory_id from memfold.memory_intervals as i
join memfold.memory_audit as a on a.tenant_id = i.tenant_id and a.memory_id = i.memory_id
where i.tenant_id = %s and a.bucket_id = 'maria' and a.predicate = 'works_at' and a.status = 'active'
limit 1
"""
CORRECTED = "Maria works at Nordlicht Studio as a design lead."


def fill(dsn: str) -> None:
    """Ingest the demo's memories as the demo does, and again into a bucket without rules for similar ones."""
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute(RULES.format(tenant=TENANT, model=MODEL, pile=PILE).encode())
    demo = ROOT / "demo"
    pile = TO / "pile.jsonl"
    lines = (demo / "memories.jsonl").read_text().replace('"bucket_id": "maria"', f'"bucket_id": "{PILE}"')
    pile.write_text("".join(line + "\n" for line in lines.splitlines() if f'"{PILE}"' in line))
    for file in (demo / "memories.jsonl", pile):
        subprocess.run(
            [Path(sys.executable).with_name("memfold"), "ingest", file, "--dsn", dsn, "--tenant", TENANT, "--source",
             file.name, "--no-resume", "--vectors", demo / "vectors.npz", "--embedding-model", MODEL,
             "--state", TO / "state"],
            check=True,
        )  # fmt: skip
    pile.unlink()
    (TO / "state").unlink(missing_ok=True)
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute("select memfold.set_policy(%s, %s, preset => 'three_tier')", [TENANT, PILE])


def calibrate(dsn: str) -> None:
    """A calibration from the labelled pairs of the tests."""
    pairs = TO / "pairs.jsonl"
    with psycopg.connect(dsn) as db, pairs.open("w") as written:
        for line in ANCHORS.read_text(encoding="utf-8").splitlines():
            pair = json.loads(line)
            if db.execute(DISTINCT_TEXTS, [pair["a"], pair["b"]]).fetchone() == (True,):
                written.write(json.dumps({name: pair[name] for name in ("a", "b", "label", "cosine")}) + "\n")
    subprocess.run(
        [Path(sys.executable).with_name("memfold"), *CALIBRATE, "--dsn", dsn, "--pairs", pairs], check=True
    )
    pairs.unlink()


def take(driver: webdriver.Chrome, name: str, most: int = 800) -> None:
    """The whole page from its top, in few colours: a picture of a few kilobytes."""
    width, height = driver.execute_script(
        "return [innerWidth, Math.ceil(document.body.getBoundingClientRect().bottom)]"
    )
    clip = {"x": 0, "y": 0, "width": width, "height": min(height, most), "scale": 1}
    taken = driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
    image = Image.open(io.BytesIO(base64.b64decode(taken["data"]))).convert("RGB")
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(TO / f"{name}.png", optimize=True)


def main(dsn: str) -> None:
    TO.mkdir(exist_ok=True)
    fill(dsn)
    calibrate(dsn)
    with psycopg.connect(dsn) as db:
        db.execute("select set_config('memfold.tenant_id', %s, false)", [TENANT])
        row = db.execute(CHANGED, [TENANT]).fetchone()
    assert row is not None  # noqa: S101 (the demo has one)
    with served(dsn, TENANT) as site, browser.started() as driver:
        browser.look(driver)
        driver.get(f"{site.url}/?token={site.token}")
        driver.get(f"{site.url}/queue?bucket=sam")
        take(driver, "queue")
        browser.look(driver, dark=True, narrow=True)
        take(driver, "queue-narrow-dark", 740)
        browser.look(driver)
        driver.get(f"{site.url}/bucket?bucket=maria")
        take(driver, "bucket", 700)
        driver.get(f"{site.url}/memory/{row[0]}")
        take(driver, "memory", 1000)
        driver.get(f"{site.url}/memory/{row[0]}/correct")
        text = driver.find_element(By.TAG_NAME, "textarea")
        text.clear()
        text.send_keys(CORRECTED)
        text.submit()
        until(lambda: "What will happen" in driver.page_source, "the preview is shown")
        take(driver, "correct")
        driver.get(f"{site.url}/runs/plan?kind=sweep&bucket={PILE}")
        take(driver, "dry-run", 620)
        driver.find_element(By.CSS_SELECTOR, "main button").click()
        until(lambda: "plan" not in driver.current_url, "the run is done")
        driver.get(driver.current_url)
        take(driver, "run", 620)
        driver.get(f"{site.url}/calibrations")
        driver.find_element(By.CSS_SELECTOR, "main th a").click()
        until(lambda: "calibrations/" in driver.current_url, "the calibration is shown")
        take(driver, "calibration", 1060)
    for picture in sorted(TO.glob("*.png")):
        print(f"{picture.relative_to(ROOT)}: {picture.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(sys.argv[1])
