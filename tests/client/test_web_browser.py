"""memfold web in a real browser: keys, hostile texts, no JavaScript, narrow and dark, and what axe-core finds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By

from tests.support import browser, npm
from tests.support.memories import check, ingest, status, vector
from tests.support.queries import DB
from tests.support.waiting import until
from tests.support.web_pages import HOSTILE, Site, calibrated, cluster, pairs, persons, served

# Where there is no browser, or no npm, the run says so (conftest.py).
pytestmark = [
    pytest.mark.one_server,
    pytest.mark.skipif(browser.why_not() is not None, reason=f"no browser: {browser.why_not()}"),
]


@pytest.fixture(scope="module")
def chromium() -> Iterator[webdriver.Chrome]:
    with browser.started() as driver:
        yield driver


@pytest.fixture
def driver(chromium: webdriver.Chrome) -> webdriver.Chrome:
    browser.look(chromium)
    chromium.delete_all_cookies()
    chromium.get_log("browser")  # type: ignore[no-untyped-call]
    return chromium


def enter(driver: webdriver.Chrome, site: Site) -> None:
    driver.get(f"{site.url}/?token={site.token}")
    assert driver.current_url == f"{site.url}/buckets"
    driver.get(f"{site.url}/queue")


def complaints(driver: webdriver.Chrome) -> list[Any]:
    """The console's messages: failed scripts, and violations of the page's policy."""
    return list(driver.get_log("browser"))  # type: ignore[no-untyped-call]


def leads_on(driver: webdriver.Chrome, action: Callable[[], object]) -> None:
    """Run an action that leads to another page, and wait for the page."""
    driver.execute_script("document.querySelector('main').dataset.old = ''")
    action()
    busy = (
        "return document.readyState !== 'complete' || !!document.querySelector('[data-old], .htmx-request')"
    )
    until(lambda: not driver.execute_script(busy), f"something follows {driver.current_url}")


def press(driver: webdriver.Chrome, key: str) -> None:
    leads_on(driver, lambda: ActionChains(driver).send_keys(key).perform())


def test_twenty_pairs_are_judged_by_keys_and_the_last_is_undone(
    db: DB, dsn: str, driver: webdriver.Chrome
) -> None:
    persons(db)
    asked = pairs(db, 20)
    with served(dsn) as site:
        enter(driver, site)
        driver.execute_script("window.stays = true")
        for number in range(20):
            shown = driver.find_element(By.CSS_SELECTOR, ".pair").text
            assert f"Alice {number} has a cat." in shown
            marks = [mark.text for mark in driver.find_elements(By.CSS_SELECTOR, ".pair .content mark")]
            assert marks == ["got", "at home"]
            press(driver, "drcx"[number % 4])
        assert "Nothing is waiting" in driver.find_element(By.TAG_NAME, "main").text
        verdicts = db.execute("select verdict from memfold.judgements where status = 'done'").fetchall()
        assert Counter(row[0] for row in verdicts) == dict.fromkeys(
            ("duplicate", "refinement", "contradiction", "distinct"), 5
        )
        # the last was kept apart; the pair comes again, and is answered otherwise
        press(driver, "u")
        assert "Alice 19 has a cat." in driver.find_element(By.CSS_SELECTOR, ".pair").text
        press(driver, "d")
        older, newer = asked[19]
        row = db.execute("select root_id from memfold.memories where memory_id = %s", [newer]).fetchone()
        assert row == (older,)
        press(driver, "u")
        row = db.execute("select root_id from memfold.memories where memory_id = %s", [newer]).fetchone()
        assert row == (None,)
        # no page was reloaded, and nothing was asked of anybody else
        assert driver.execute_script("return window.stays") is True
        loaded = driver.execute_script(
            "return performance.getEntriesByType('resource').map(e => new URL(e.name).origin)"
        )
        assert set(loaded) == {site.url}
        # nothing that was read stays in the browser's storage
        kept = driver.execute_script("return [Object.keys(localStorage), Object.values(sessionStorage)]")
        assert "Alice" not in str(kept)
    assert complaints(driver) == []
    check(db)


def test_a_key_that_is_typed_or_held_with_another_does_nothing(
    db: DB, dsn: str, driver: webdriver.Chrome
) -> None:
    persons(db)
    pairs(db, 2)
    with served(dsn) as site:
        enter(driver, site)
        ActionChains(driver).key_down("\ue009").send_keys("d").key_up("\ue009").perform()
        driver.find_element(By.NAME, "richer").send_keys("d")
        driver.get(f"{site.url}/search")
        driver.find_element(By.NAME, "q").send_keys("duck")
        assert driver.find_element(By.NAME, "q").get_attribute("value") == "duck"
        driver.get(f"{site.url}/queue")
        # by the keyboard alone: the first stop is a way past the navigation
        ActionChains(driver).send_keys("\ue004").perform()
        assert driver.switch_to.active_element.text == "Skip to the content"
        press(driver, "s")
        assert "Alice 1" in driver.find_element(By.CSS_SELECTOR, ".pair").text
    assert db.execute("select count(*) from memfold.judgements where status = 'open'").fetchone() == (2,)


def test_on_a_phone_the_answers_are_in_reach_and_a_term_is_explained_by_keyboard(
    db: DB, dsn: str, driver: webdriver.Chrome
) -> None:
    persons(db)
    pairs(db, 1)
    with served(dsn) as site:
        enter(driver, site)
        browser.look(driver, narrow=True)
        driver.get(f"{site.url}/queue")
        seen = (
            "const at = arguments[0].getBoundingClientRect(); return at.top > 0 && at.bottom <= innerHeight"
        )
        buttons = driver.find_elements(By.CSS_SELECTOR, "button[name=verdict]")
        assert len(buttons) == 4
        assert all(driver.execute_script(seen, button) for button in buttons)
        # equal in both, so shown once
        assert driver.find_element(By.TAG_NAME, "main").text.count("Alice 0\n") == 1
        term = driver.find_element(By.XPATH, "//summary[text()='similarity']")
        assert "How near" not in driver.find_element(By.TAG_NAME, "main").text
        driver.execute_script("arguments[0].focus()", term)
        ActionChains(driver).send_keys("\ue007").perform()
        assert "How near" in driver.find_element(By.TAG_NAME, "main").text


def test_keys_name_the_memories_of_a_cluster(db: DB, dsn: str, driver: webdriver.Chrome) -> None:
    ids = cluster(db)
    with served(dsn) as site:
        enter(driver, site)
        for key in "4141":
            ActionChains(driver).send_keys(key).perform()
        ActionChains(driver).send_keys("4").perform()
        boxes = driver.find_elements(By.NAME, "member")
        assert [box.is_selected() for box in boxes] == [True, True, True, False]
        press(driver, "d")
        assert (
            "merged, A stands for those named" in driver.find_element(By.CSS_SELECTOR, "[role=status]").text
        )
    assert [status(db, one) for one in ids] == ["active", "merged", "merged", "active"]


def test_a_hostile_text_does_nothing(db: DB, dsn: str, driver: webdriver.Chrome) -> None:
    persons(db)
    first = ingest(db, HOSTILE, subject=HOSTILE, source_turn_ids=[HOSTILE], session_id=HOSTILE, **vector(1))
    ingest(db, f"{HOSTILE} too", subject=HOSTILE, **vector(0.9))
    with served(dsn) as site:
        enter(driver, site)
        for path in ("/queue?sql", f"/memory/{first.memory_id}?sql", "/buckets", "/search?q=end"):
            driver.get(site.url + path)
            text = driver.find_element(By.TAG_NAME, "main").text
            assert path == "/buckets" or "<script>window.owned=1</script><img src=x onerror" in text
            assert driver.execute_script("return window.owned") is None
            assert (
                driver.find_elements(By.CSS_SELECTOR, "main script, main img, main a[href^=javascript]") == []
            )
        driver.get(f"{site.url}/queue")
        press(driver, "d")
        assert driver.execute_script("return window.owned") is None
    assert complaints(driver) == []


def test_without_javascript_pages_are_read_and_forms_work(db: DB, dsn: str) -> None:
    persons(db)
    pairs(db, 1)
    with served(dsn) as site, browser.started(javascript=False) as driver:
        enter(driver, site)
        assert "Alice 0 has a cat." in driver.find_element(By.CSS_SELECTOR, ".pair").text
        driver.find_element(By.LINK_TEXT, "memory A").click()
        assert "Ledger" in driver.find_element(By.TAG_NAME, "main").text
        for name in ("Search", "Buckets", "Runs", "Statistics", "Queue"):
            driver.find_element(By.LINK_TEXT, name).click()
            assert driver.find_element(By.TAG_NAME, "h1").text == name
        for button, told in (
            ("button[value=duplicate]", "merged, A stands for both"),
            ("[role=status] button", "undone"),
        ):
            driver.find_element(By.CSS_SELECTOR, button).click()
            until(lambda told=told: told in driver.page_source, told)
    check(db)


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    found, why = npm.install(npm.AXE, tmp_path_factory.mktemp("axe"))
    if found is None:
        pytest.skip(why)
    return Path(found, "axe-core", "axe.min.js").read_text()


def test_axe_finds_nothing_wide_or_narrow_light_or_dark(
    db: DB, dsn: str, driver: webdriver.Chrome, axe: str
) -> None:
    persons(db)
    pairs(db, 3)
    ids = cluster(db)
    ingest(db, "bob keeps 0 dogs", subject="Bob", predicate="p0", source_turn_ids=["turn 1"])
    run, asked = db.execute(
        "select run_id, judgement_id from memfold.judgements where run_id is not null and member_ids is not null"
    ).fetchall()[0]
    paths = ["/queue", "/queue/list", f"/queue?judgement={asked}&sql", f"/memory/{ids[0]}", "/buckets",
             "/bucket?bucket=default&show=all", "/statistics", "/runs", f"/runs/{run}", "/runs/plan?kind=consolidation",
             "/search?q=dogs", "/calibrations", f"/calibrations/{calibrated(db)}", "/nowhere",
             *(f"/memory/{ids[0]}/{kind}" for kind in ("correct", "merge", "forget", "erase"))]  # fmt: skip
    found: dict[str, Any] = {}
    with served(dsn) as site:
        enter(driver, site)
        for path in paths:
            driver.get(site.url + path)
            driver.execute_script("document.querySelectorAll('details').forEach(one => one.open = true)")
            driver.execute_script(axe)
            for dark, narrow in ((False, False), (True, True)):
                browser.look(driver, dark=dark, narrow=narrow)
                result = driver.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
                assert len(result["passes"]) > 15
                for violation in result["violations"]:
                    nodes = [node["html"] for node in violation["nodes"]]
                    found[f"{path} {violation['id']} ({violation['impact']})"] = nodes
                wide, seen = driver.execute_script(
                    "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
                )
                assert wide <= seen, f"{path} is {wide} wide, of which {seen} are seen"
            browser.look(driver)
    assert found == {}
