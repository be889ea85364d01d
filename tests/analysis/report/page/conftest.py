"""The page in a real browser: Debian's Chromium, driven without a window; skipped where none is."""

import shutil
import time
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest

from analysis.report import main
from tests.analysis.report.page.attacks import ATTACK, NAME

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def attacked(folder: Path, place: int) -> None:
    """Plant the attack as an accepted program, as a problem's name and as its prompt."""
    evals = pd.read_parquet(folder / "evals.parquet")
    names = sorted(evals["problem"].unique())
    evals.loc[evals["problem"] == names[place], ["program", "verdict"]] = [ATTACK, "ACCEPTED"]
    evals["problem"] = evals["problem"].replace(names[place], NAME)
    evals.to_parquet(folder / "evals.parquet", index=False)
    asked = [{"problem": name, "prompt": f"Add what is above {name}."} for name in names]
    asked[place] = {"problem": NAME, "prompt": ATTACK}
    pd.DataFrame(asked).to_parquet(folder / "problems.parquet")


@pytest.fixture(scope="session")
def chromium():
    """The browser's path."""
    if not CHROMIUM:
        pytest.skip("no Chromium here (apt-get install chromium): the page was not tried in it")
    pytest.importorskip("playwright.sync_api", reason="playwright is in [dev]")
    return CHROMIUM


@pytest.fixture(scope="module")
def browser(chromium):
    """Chromium, one process for a file's pages.

    Not for the session: playwright's event loop runs until it is closed, and other tests of the
    same worker have their own.
    """
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield launched
        launched.close()


@contextmanager
def opened(browser, file: Path):
    """Open a page; what it logs and asks for is in `seen`."""
    page = browser.new_page(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    page.seen = []
    page.on("console", lambda message: page.seen.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: page.seen.append(f"error: {error}"))
    page.on("dialog", lambda dialog: (page.seen.append("dialog"), dialog.dismiss()))
    page.on("request", lambda request: page.seen.append(f"request: {request.url}"))
    page.goto(file.as_uri())
    page.wait_for_selector("main > section[data-ready]", state="attached")
    assert page.seen.pop(0).startswith("request: file://")
    yield page
    page.close()


def becomes_true(page, expression: str, seconds: float = 10.0):
    """Wait for a JavaScript expression; the page's policy forbids playwright's own wait."""
    end = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < end, expression
        page.wait_for_timeout(50)


@pytest.fixture(scope="session")
def three_groups(tmp_path_factory, make_run, chromium):
    """The page's file of three groups on two seeds."""
    root = tmp_path_factory.mktemp("page")
    skills = {"grpo_correction_of_lags": 2.0, "ppo": 4.0, "spo": 6.0}
    for algo, skill in skills.items():
        for seed in (0, 1):
            sizes = {"problems": 8, "samples": 10, "every": 10}
            stale = {"train.lag": 10} if algo == "spo" else {}
            run = make_run(root / "outputs", algo, seed, skill=skill, config=stale, **sizes)
            attacked(run, 3)
    assert main([f"runs={root}/outputs", f"out={root}/report"]) == 0
    return root / "report" / "report.html"


@pytest.fixture(scope="module")
def page(browser, three_groups):
    """The page of three groups, open."""
    with opened(browser, three_groups) as one:
        yield one


@pytest.fixture
def quiet(page):
    """Whatever a test does, the page logs no error, asks for nothing and opens no dialog."""
    yield
    assert page.seen == []
