"""The page in a real browser: Debian's Chromium, driven without a window; skipped where none is."""

import shutil
import time
from itertools import pairwise

import pytest

from analysis.report import main
from tests.analysis.attacks import NAME, plant
from tests.analysis.conversations import add_conversations

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="no Chromium here (apt-get install chromium)")


@pytest.fixture(scope="module")
def page(tmp_path_factory, make_run):
    """The page of three groups on two seeds, open; spo's evaluations are conversations."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is in [dev]")
    root = tmp_path_factory.mktemp("page")
    for algo, skill in {"grpo_correction_of_lags": 2.0, "ppo": 4.0, "spo": 6.0}.items():
        for seed in (0, 1):
            sizes = {"problems": 8, "samples": 10, "every": 10}
            run = make_run(root / "outputs", algo, seed, skill=skill, **sizes)
            plant(run, 3)
            if algo == "spo":
                add_conversations(run)
    assert main([f"runs={root}/outputs", f"out={root}/report"]) == 0
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        one = browser.new_page(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
        one.seen = []
        one.on("console", lambda message: one.seen.append(f"console: {message.text}"))
        one.on("pageerror", lambda error: one.seen.append(f"error: {error}"))
        one.on("dialog", lambda dialog: (one.seen.append("dialog"), dialog.dismiss()))
        one.on("request", lambda request: one.seen.append(f"request: {request.url}"))
        one.goto((root / "report" / "report.html").as_uri())
        one.wait_for_selector("main > section[data-ready]", state="attached")
        assert one.seen.pop(0).startswith("request: file://")
        yield one
        browser.close()


@pytest.fixture(autouse=True)
def quiet(page):
    """Whatever a test does, the page logs no error, asks for nothing and opens no dialog."""
    yield
    assert page.seen == []


def column(table, place):
    cells = table.locator(f"tbody tr > :nth-child({place})").all_inner_texts()
    return [cell.split("\n")[0] for cell in cells]


def test_a_press_on_a_heading_sorts_and_says_so(page):
    table = page.locator("h3:has-text('Results') ~ .scroll table").first
    heading = table.locator("thead th").nth(3)
    for order in ("descending", "ascending"):
        heading.get_by_role("button").click()
        values = [float(cell) for cell in column(table, 4)]
        assert values == sorted(values, reverse=order == "descending") and len(set(values)) > 2
        assert heading.get_attribute("aria-sort") == order


def test_the_budget_axis_switches_and_a_key_hides_its_group(page):
    figure = page.locator("figure:has-text('training steps')").first
    figure.get_by_role("radio", name="wall time").check()
    assert not figure.get_by_text("training steps").first.is_visible()
    assert figure.get_by_text("wall time in seconds").first.is_visible()
    key = figure.get_by_role("button", name="ppo")
    line = figure.locator(".series[data-group=ppo] .line:visible")
    shown = line.count()
    assert shown > 0 and figure.locator(".band:visible").count() > 0  # three groups have bands
    key.click()
    assert line.count() == 0 and key.get_attribute("aria-pressed") == "false"
    figure.get_by_role("button", name="all").click()
    assert line.count() == shown and key.get_attribute("aria-pressed") == "true"
    page.get_by_role("button", name="none").first.click()
    assert line.count() == 0 and page.locator(".forest .off .name").first.is_visible()
    page.get_by_role("button", name="all").first.click()


def test_the_first_figure_is_in_the_first_screen(page):
    """The answer and its figure are seen without scrolling; names in the front do not overlap."""
    for width, most in ((1280, 800), (390, 900)):
        page.set_viewport_size({"width": width, "height": 900})
        page.evaluate("open => document.querySelector('.toc details').open = open", width > 1000)
        top = page.locator("svg.panel").first.bounding_box()["y"] + page.evaluate("scrollY")
        assert top < most and page.evaluate("document.documentElement.scrollWidth") == width
    page.set_viewport_size({"width": 1280, "height": 900})
    names = page.locator("svg.panel:not(.forest)").first.locator(".end:visible")
    heights = sorted(float(y) for y in names.evaluate_all("e => e.map(x => x.getAttribute('y'))"))
    assert len(heights) > 3 and min(b - a for a, b in pairwise(heights)) >= 12


def test_the_matrix_sorts_and_tells_who_solves_what(page):
    box = page.locator(".matrix-box")
    box.locator("thead button").filter(has_text="spo").click()
    place = box.locator("thead th").all_inner_texts().index("spo") + 1
    shares = [int(cell.strip("% ")) for cell in column(box, place)]
    assert shares == sorted(shares, reverse=True) and len(shares) == 8
    box.get_by_role("combobox").select_option("solved by every group")
    assert NAME.split("<")[0] in box.locator("tbody").inner_text()
    assert "0 %" not in column(box, place)
    box.get_by_role("combobox").select_option("all problems")


def test_a_problem_is_read_program_by_program_and_two_side_by_side(page):
    page.locator(".matrix-box tbody a").filter(has_text="mini/test/0000").click()
    box = page.locator(".explorer")
    box.get_by_label("Problem").locator("option:checked").wait_for(state="attached")
    end = time.monotonic() + 10
    while "above mini/test/0000." not in box.locator("pre.prompt").inner_text():
        assert time.monotonic() < end
    box.get_by_label("Right group").select_option("ppo")
    ppo = box.locator(".column").filter(has=page.get_by_role("heading", name="ppo"))
    assert "of 20 samples accepted" in ppo.locator("> p").inner_text()
    heads = ppo.locator(".form > header .verdict")
    counts = heads.evaluate_all("all => all.map(e => parseInt(e.textContent))")
    assert sum(counts) == 20
    forms = ppo.locator(".form")
    texts = [forms.nth(i).locator("pre").last.text_content() for i in (0, 1)]
    forms.nth(0).get_by_role("button", name="A").last.click()
    forms.nth(1).get_by_role("button", name="B").last.click()
    panes = box.locator(".compare pre").all_text_contents()
    shown = [[line for line in pane.split("\n") if line] for pane in panes]
    assert shown == [[line for line in text.split("\n") if line] for text in texts]
    assert box.locator(".compare .gone").count() + box.locator(".compare .come").count() > 0


def test_a_conversation_is_shown_with_its_observations(page):
    box = page.locator(".explorer")
    box.get_by_label("Left group").select_option("spo")
    spo = box.locator(".column").filter(has=page.get_by_role("heading", name="spo"))
    assert box.locator(".column").count() == 2 and spo.locator(".conversation > li").count() > 3
    assert "failed" in spo.locator("pre.observation").first.text_content()


def test_programs_are_searched_and_filtered_by_verdict(page):
    box = page.locator(".explorer")
    words, verdict = box.get_by_label("Search in the programs"), box.get_by_label("Verdict")
    options = box.get_by_label("Problem", exact=True).locator("option")
    words.fill("window.ATTACKED")  # of one problem, in any case
    assert options.count() == 1 and "in 1 of 8 problems" in box.inner_text()
    assert all("attacked" in text for text in box.locator(".form pre").all_text_contents())
    verdict.select_option("wrong answer")
    assert options.count() == 0
    words.clear()
    found = box.locator(".form > header .verdict").all_inner_texts()
    assert 1 < options.count() <= 8 and all("wrong answer" in text for text in found)
    verdict.select_option("any verdict")
    assert options.count() == 8


def test_an_attack_is_shown_as_text(page):
    page.locator(".matrix-box tbody a").filter(has_text="<img").click()
    page.wait_for_timeout(300)
    shown = page.locator(".explorer .form pre").first.inner_text()
    for part in ("</script><script>alert(1)</script>", "<img src=x onerror=alert(2)>", "<!--"):
        assert part in shown
    assert page.evaluate("document.querySelectorAll('img, iframe, script[src]').length") == 0
    assert page.evaluate("window.attacked") is None
    policy = page.locator("meta[http-equiv]").get_attribute("content")
    assert policy.startswith("default-src 'none'")


def test_every_control_has_a_name(page):
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll('button, input, select, [role=region]')].filter(e =>
          !(e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length)).length"""
    )
    assert unnamed == 0
