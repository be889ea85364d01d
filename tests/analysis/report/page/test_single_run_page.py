"""The page of a single run in a real browser."""

from analysis.report import main
from tests.analysis.report.page.conftest import becomes_true, opened


def test_gained_problems_open_beside_what_the_base_wrote(browser, tmp_path, make_run):
    run = make_run(tmp_path / "outputs", "spo", problems=20, samples=10, skill=6.0)
    assert main([f"runs={run}", f"out={tmp_path / 'report'}"]) == 0
    with opened(browser, tmp_path / "report" / "report.html") as page:
        named = page.locator("h4:has-text('Gained') + .named a")
        problem = named.nth(2).inner_text()
        named.nth(2).click()
        explorer = page.locator(".explorer")
        becomes_true(page, "document.activeElement.matches('.explorer select')")
        assert explorer.locator("option:checked").first.inner_text() == problem
        base, trained = explorer.locator(".column > p").all_inner_texts()
        assert base.startswith("0 of 10 programs accepted") and not trained.startswith("0 of")
        left, right = explorer.locator(".compare h5").all_inner_texts()
        assert left.startswith("A: base, form ") and right.startswith("B: spo, form ")
        page.go_back()
        becomes_true(page, "location.hash === ''")
        assert page.seen == []
