"""Finding one's way: contents, addresses, values of points, names on a narrow screen."""

from urllib.parse import quote

import pandas as pd
import pytest

from tests.analysis.report.page.attacks import NAME
from tests.analysis.report.page.conftest import becomes_true

pytestmark = pytest.mark.usefixtures("quiet")

PROBLEM = "mini/test/0001"


@pytest.fixture(autouse=True)
def start(page):
    """Every test begins at the top of the page, without an address."""
    page.evaluate("history.pushState(null, '', location.pathname); scrollTo(0, 0)")


def chosen_problem(page):
    return page.locator(".explorer").get_by_label("Problem").locator("option:checked").inner_text()


def in_view(page, locator):
    box = locator.bounding_box()
    return box is not None and -1 <= box["y"] < page.viewport_size["height"]


def test_the_contents_name_every_part_and_follow_the_reading(page):
    toc = page.get_by_role("navigation", name="Contents")
    named = toc.get_by_role("link").all_inner_texts()
    headings = page.locator("main > section h3").evaluate_all(
        "all => all.map(h => h.firstChild.textContent.trim())"
    )
    assert len(headings) > 12 and set(headings) < set(named) and named[-1] == "Terms"
    toc.get_by_role("link", name="Training curves", exact=True).click()
    heading = page.get_by_role("heading", name="Training curves")
    assert page.evaluate("location.hash") == "#compare--training-curves"
    assert in_view(page, heading) and in_view(page, toc)
    current = toc.locator("[aria-current=location]")
    current.get_by_text("Training curves").wait_for()
    page.get_by_role("heading", name="How programs fail").scroll_into_view_if_needed()
    page.mouse.wheel(0, 500)
    toc.locator("[aria-current=location]:not([href$=training-curves])").wait_for()


def test_contents_are_folded_on_a_narrow_screen(page):
    page.set_viewport_size({"width": 390, "height": 844})
    toc = page.get_by_role("navigation", name="Contents")
    link = toc.get_by_role("link", name="Results", exact=True)
    assert not link.is_visible()
    toc.locator("summary").click()
    link.click()
    assert not link.is_visible()
    heading = page.get_by_role("heading", name="Results", exact=False).first
    assert in_view(page, heading)
    assert heading.bounding_box()["y"] >= toc.bounding_box()["height"] - 1  # not below the bar
    page.set_viewport_size({"width": 1280, "height": 900})
    assert link.is_visible()


def test_every_heading_has_a_link_to_itself_and_no_two_are_the_same(page):
    links = page.locator(":is(h2, h3, summary) > a.anchor")
    targets = links.evaluate_all(
        """all => all.map(a =>
          [a.getAttribute('href'), document.getElementById(a.hash.slice(1))?.id])"""
    )
    assert len(targets) == len({href for href, _ in targets}) > 15
    assert all(href == f"#{target}" for href, target in targets)


def test_an_address_opens_the_explorer_at_a_sample(page, three_groups):
    page.evaluate(f"location.hash = 'problem={PROBLEM}'")
    spo = page.locator(".column").filter(has=page.get_by_role("heading", name="spo"))
    address = spo.locator(".form").nth(1).locator("a.anchor").get_attribute("href")
    name = spo.locator(".form").nth(1).get_attribute("aria-label")
    page.goto("about:blank")  # as one who follows a link from elsewhere
    page.goto(f"{three_groups.as_uri()}{address}&arm=base")
    page.wait_for_selector(".form.chosen")
    assert chosen_problem(page) == PROBLEM
    form = page.locator(".form.chosen")
    assert form.get_attribute("aria-label") == name and in_view(page, form)
    assert page.evaluate("document.activeElement.matches('.form.chosen')")
    left, right = page.locator(".compare h5").all_inner_texts()
    assert left == f"A: spo, {name}" and right.startswith("B: base, form ")
    itself = ("request: about:blank", f"request: {three_groups.as_uri()}")
    assert [one for one in page.seen if not one.startswith(itself)] == []
    page.seen.clear()  # the page itself, loaded anew


def test_an_address_is_reached_at_once(page, three_groups):
    page.emulate_media(reduced_motion="no-preference")
    heading = page.locator(".explorer-title")
    assert not in_view(page, heading)
    page.evaluate(f"location.hash = 'problem={PROBLEM}'")
    becomes_true(page, "document.activeElement.matches('.explorer select')")
    assert in_view(page, heading)
    page.emulate_media(reduced_motion="reduce")


def test_a_name_says_what_it_means(page):
    key = page.locator("details.names")
    assert not key.locator("dl").is_visible()
    key.locator("summary").click()
    names, meanings = (key.locator(one).all_inner_texts() for one in ("dt", "dd"))
    lines = dict(zip(names, meanings, strict=True))
    assert lines["spo"] == "spo; rollout policy lag 10" and lines["ppo"] == "ppo"
    in_answer = page.locator(".answer .metrics abbr").filter(has_text="spo").first
    assert in_answer.get_attribute("title") == lines["spo"]
    row = page.locator("div[aria-label=Results] th[scope=row]").filter(has_text="spo")
    row.hover()
    assert row.get_attribute("title") == f"spo: {lines['spo']}"
    key.locator("summary").click()


def test_back_and_forward_go_through_problems(page):
    box = page.locator(".explorer")
    box.get_by_label("Problem").select_option(label="mini/test/0002")
    page.locator(".matrix-box tbody a").filter(has_text="0005").click()
    shown = "document.querySelector('.explorer option:checked').textContent.endsWith('{}')"
    becomes_true(page, shown.format("0005"))
    box.get_by_role("button", name="Next").click()
    assert chosen_problem(page) == "mini/test/0006"
    for button, problem in (("back", "0005"), ("back", "0002"), ("forward", "0005")):
        page.evaluate(f"history.{button}()")
        becomes_true(page, shown.format(problem))
    assert page.evaluate("location.hash") == "#problem=mini/test/0005"


def test_what_is_chosen_is_in_the_link_and_a_hostile_name_in_an_address(page):
    page.evaluate(f"location.hash = 'problem={quote(NAME, safe='')}'")
    becomes_true(page, "document.activeElement.matches('.explorer select')")
    box = page.locator(".explorer")
    assert chosen_problem(page).startswith("mini/test/<img")
    spo = box.locator(".column").filter(has=page.get_by_role("heading", name="spo"))
    spo.locator(".form").first.get_by_role("button", name="B").click()
    shared = box.get_by_role("link", name="Link to what is shown").get_attribute("href")
    assert page.evaluate("location.hash") == shared
    assert "arm=spo&sample=" in shared
    page.evaluate("location.hash = 'problem=nowhere'")
    page.get_by_text("This page has no programs for this problem.").wait_for()


def panel(page, title, figure="Learning curves"):
    drawn = page.locator(f"h3:has-text('{figure}') + figure")
    return drawn.locator(f".frame:has(> .panel-title:text-is('{title}')):visible")


def test_a_point_says_its_values_under_the_pointer(page):
    frame = panel(page, "pass@1")
    frame.scroll_into_view_if_needed()
    series = frame.locator(".series[data-group=spo] .marker").last
    box = series.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    said = frame.get_by_role("status").inner_text()
    results = page.locator("div[aria-label=Results] tbody tr").filter(has_text="spo")
    mean, ends = results.locator("td").nth(2).inner_text().split("\n")[:2]
    assert said.startswith("spo pass@1 ") and "at training steps 20" in said
    assert said.endswith("95 % interval in brackets")
    value, bracket = said.removeprefix("spo pass@1 ").split(" [")
    low, high = bracket.split("]")[0].split(", ")
    assert f"{float(value):.3f}" == mean
    assert f"[{float(low):.2f}, {float(high):.2f}]" == ends
    page.mouse.move(5, 5)
    assert not frame.get_by_role("status").is_visible()


def test_arrow_keys_walk_along_a_line_and_between_groups(page):
    frame = panel(page, "pass@1")
    frame.locator("svg").focus()
    page.keyboard.press("ArrowRight")
    status = frame.get_by_role("status")
    assert "at training steps 0" in status.inner_text()
    first = status.locator("strong").inner_text()
    page.keyboard.press("End")
    assert "at training steps 20" in status.inner_text()
    page.keyboard.press("ArrowLeft")
    assert "at training steps 10" in status.inner_text()
    page.keyboard.press("ArrowDown")
    assert status.locator("strong").inner_text() != first
    assert "at training steps 10" in status.inner_text()
    assert frame.locator(".series.lit").count() == 1
    page.keyboard.press("Escape")
    assert not status.is_visible() and frame.locator(".series.lit").count() == 0


def test_training_panels_say_the_range_over_seeds(page, three_groups):
    curve = pd.read_csv(three_groups.parent / "training.csv").set_index(["label", "step"])
    at_end = curve.loc[("grpo_correction_of_lags", 20)]
    frame = panel(page, "reward", "Training curves")
    frame.locator("svg").focus()
    page.keyboard.press("End")
    said = frame.get_by_role("status").inner_text()
    mean, low, high = (f"{at_end[f'reward_mean{end}']:.4g}" for end in ("", "_low", "_high"))
    place = "at training steps 20, range over seeds in brackets"
    assert said == f"grpo_correction_of_lags reward {mean} [{low}, {high}] {place}"


def test_overlapping_intervals_are_edges_and_only_the_chosen_is_filled(page):
    frame = panel(page, "pass@1")
    fills = "all => all.map(e => getComputedStyle(e).fill)"
    bands = frame.locator(".band")
    assert bands.count() == 3 and set(bands.evaluate_all(fills)) == {"none"}
    frame.locator("svg").focus()
    page.keyboard.press("ArrowRight")
    assert sorted(fill == "none" for fill in bands.evaluate_all(fills)) == [False, True, True]
    dashes = bands.evaluate_all("all => all.map(e => e.getAttribute('stroke-dasharray'))")
    assert len(set(dashes)) == 3
    page.keyboard.press("Escape")


def test_no_name_is_broken_within_a_word_on_a_narrow_screen(page):
    page.set_viewport_size({"width": 390, "height": 844})
    broken = page.evaluate(
        r"""() => {
          const broken = [];
          const names = document.querySelectorAll('th, .keys span, .choice label, h2, h3, h5');
          for (const box of names) {
            const texts = document.createTreeWalker(box, NodeFilter.SHOW_TEXT);
            for (let node = texts.nextNode(); node; node = texts.nextNode())
              for (const word of node.data.matchAll(/[^\s_\/=−–—-]+/g)) {
                const range = document.createRange();
                range.setStart(node, word.index);
                range.setEnd(node, word.index + word[0].length);
                const tops = new Set([...range.getClientRects()].map(r => Math.round(r.top)));
                if (tops.size > 1) broken.push(box.tagName + ' ' + word[0]);
              }
          }
          return broken;
        }"""
    )
    page.set_viewport_size({"width": 1280, "height": 900})
    assert [word for word in broken if "onerror" not in word and "U+" not in word] == []


def test_tables_link_to_files_that_are_there(page, three_groups):
    hrefs = "all => all.map(a => a.getAttribute('href'))"
    links = page.locator("a[href$='.csv']").evaluate_all(hrefs)
    names = {"table.csv", "differences.csv", "curve.csv", "training.csv", "costs.csv", "runs.csv"}
    assert names < set(links)
    assert all((three_groups.parent / name).is_file() for name in links)
