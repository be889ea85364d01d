"""The page's tables, figures and explorer in a real browser."""

import json

import pytest

from analysis.report import main
from tests.analysis.report.page.attacks import NAME

pytestmark = pytest.mark.usefixtures("quiet")


def column(page, table, place):
    cells = page.locator(f"{table} tbody tr > :nth-child({place})").all_inner_texts()
    return [cell.split("\n")[0] for cell in cells]


def test_a_press_on_a_heading_sorts_and_says_so(page):
    table = "div[aria-label=Results] table"
    heading = page.locator(f"{table} thead th").nth(3)
    heading.get_by_role("button").click()
    values = [float(cell) for cell in column(page, table, 4)]
    assert values == sorted(values, reverse=True) and len(set(values)) > 2
    assert heading.get_attribute("aria-sort") == "descending"
    heading.get_by_role("button").focus()
    page.keyboard.press("Enter")
    values = [float(cell) for cell in column(page, table, 4)]
    assert values == sorted(values)
    assert heading.get_attribute("aria-sort") == "ascending"


def test_a_filter_keeps_the_rows_with_its_words(page):
    box = page.locator("div.tools:has(+ div[aria-label='Checks of each run'])")
    rows = page.locator("div[aria-label='Checks of each run'] tbody tr")
    box.get_by_role("searchbox").fill("spo")
    assert [row.is_visible() for row in rows.all()].count(True) == 2
    assert box.get_by_role("status").inner_text() == "2 of 6 rows"
    box.get_by_role("searchbox").fill("")
    assert all(row.is_visible() for row in rows.all())


def test_the_budget_axis_switches_and_a_key_hides_its_group(page):
    figure = page.locator("figure:has([data-choice='Measured against'])").first
    assert figure.get_by_text("training steps").first.is_visible()
    figure.get_by_role("radio", name="wall time").check()
    assert not figure.get_by_text("training steps").first.is_visible()
    assert figure.get_by_text("wall time in seconds").first.is_visible()
    key = figure.get_by_role("button", name="ppo")
    line = figure.locator(".series[data-group=ppo]:visible")
    assert line.count() > 0
    key.click()
    assert line.count() == 0 and key.get_attribute("aria-pressed") == "false"
    key.click()
    assert line.count() > 0


def test_the_matrix_sorts_and_tells_who_alone_solves_what(page):
    box = page.locator(".matrix-box")
    heading = box.locator("thead th").filter(has_text="spo")
    heading.get_by_role("button").click()
    place = box.locator("thead th").all_inner_texts().index("spo") + 1
    shares = [int(cell.strip("<% ")) for cell in column(page, ".matrix-box table", place)]
    assert shares == sorted(shares, reverse=True) and len(shares) == 8
    box.get_by_role("combobox").select_option("solved by every group")
    assert NAME.split("<")[0] in box.locator("tbody").inner_text()
    assert "0 %" not in column(page, ".matrix-box table", place)
    box.get_by_role("combobox").select_option("all problems")


def test_a_problem_is_read_program_by_program_and_two_side_by_side(page):
    page.locator(".matrix-box tbody a").filter(has_text="mini/test/0000").click()
    box = page.locator(".explorer")
    assert box.get_by_label("Problem").locator("option:checked").inner_text() == "mini/test/0000"
    assert "Add what is above mini/test/0000." in box.locator("pre.prompt").inner_text()
    spo = box.locator(".column").filter(has=page.get_by_role("heading", name="spo"))
    said = spo.locator("> p").inner_text()
    assert "of 20 programs accepted" in said
    counts = spo.locator(".verdict").evaluate_all("all => all.map(e => parseInt(e.textContent))")
    assert sum(counts) == 20
    forms = spo.locator(".form")
    texts = forms.locator("pre").all_text_contents()
    forms.nth(0).get_by_role("button", name="A").click()
    forms.nth(1).get_by_role("button", name="B").click()
    panes = box.locator(".compare pre").all_text_contents()
    shown = [[line for line in pane.split("\n") if line] for pane in panes]
    assert shown == [[line for line in text.split("\n") if line] for text in texts[:2]]
    assert box.locator(".compare .gone").count() > 0 and box.locator(".compare .come").count() > 0
    box.get_by_label("Trained groups").select_option("10")
    assert "of 20 programs accepted" in spo.locator("> p").inner_text()


def test_an_attack_is_shown_as_text(page):
    page.locator(".matrix-box tbody a").filter(has_text="<img").click()
    box = page.locator(".explorer")
    shown = box.locator(".form pre").first.inner_text()
    for part in ("</script><script>alert(1)</script>", "<img src=x onerror=alert(2)>", "<!--"):
        assert part in shown
    for odd in ("U+0000", "U+001B", "U+202E", "U+2066", "U+2028"):
        assert odd in shown
    assert page.evaluate("document.querySelectorAll('img, iframe, script[src]').length") == 0
    assert page.evaluate("window.attacked") is None
    policy = page.locator("meta[http-equiv]").get_attribute("content")
    assert policy.startswith("default-src 'none'")


def test_every_table_has_headings_and_every_control_a_name(page):
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll('button, input, select, [role=region]')].filter(e =>
          !(e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length)).length"""
    )
    assert unnamed == 0
    assert page.locator("table:not(:has(thead th[scope=col]))").count() == 0
    assert page.locator("svg.panel:not([aria-label])").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_a_narrow_screen_and_text_stands_out(page, scheme):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    colours = json.loads(
        page.evaluate(
            """() => JSON.stringify(['paper', 'ink', 'soft', 'accent', 'g0', 'g1', 'g2', 'g3', 'g4',
          'g5', 'base'].map(n => getComputedStyle(document.documentElement)
          .getPropertyValue('--' + n).trim()))"""
        )
    )
    paper, *others = map(luminance, colours)
    for i, other in enumerate(others):
        contrast = (max(paper, other) + 0.05) / (min(paper, other) + 0.05)
        assert contrast > (4.5 if i < 3 else 3.0), (colours[i + 1], contrast)
    page.set_viewport_size({"width": 1280, "height": 900})
    page.emulate_media(color_scheme="light")


def luminance(colour: str) -> float:
    """Relative luminance of #rrggbb (WCAG 2)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.slow  # a report of 18 runs for the look of wide tables
def test_names_of_many_groups_stand_upright_over_their_columns(page, tmp_path, make_run):
    for place in range(9):
        for seed in (0, 1):
            make_run(tmp_path / "outputs", f"algorithm_number_{place}", seed, problems=6, samples=5)
    assert main([f"runs={tmp_path}/outputs", f"out={tmp_path}/report"]) == 0
    other = page.context.browser.new_page(viewport={"width": 1280, "height": 900})
    try:
        other.goto((tmp_path / "report" / "report.html").as_uri())
        other.wait_for_selector("main > section[data-ready]", state="attached")
        for table in other.locator("table.slim").all():
            if not table.is_visible():  # another metric's, until it is chosen
                continue
            names = table.locator("thead th").filter(has_text="algorithm_number")
            sizes = [one.bounding_box() for one in names.all()]
            assert len(sizes) >= 9
            assert all(box["width"] < 70 < box["height"] for box in sizes)
        # The differences have no room for intervals, and say where they are.
        assert other.locator("table.slim").count() == 4
        assert "intervals are in differences.csv" in other.locator("main").inner_text()
        heat = other.locator(".matrix-box table")
        heat.get_by_role("button", name="algorithm_number_4").click()
        sorted_by = heat.locator("thead th[aria-sort=descending]")
        assert sorted_by.inner_text().strip() == "algorithm_number_4"
    finally:
        other.close()
