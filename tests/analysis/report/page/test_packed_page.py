"""The page from a packed study of the repository in a real browser."""

from pathlib import Path

import pytest

from analysis.report import main
from tests.analysis.report.page.conftest import opened

STUDY = Path(__file__).parents[4] / "docs" / "results" / "study-size"


@pytest.fixture(scope="module")
def packed_page(browser, tmp_path_factory):
    """The page, open, and its folder."""
    folder = tmp_path_factory.mktemp("packed")
    assert main([f"runs={STUDY}", f"out={folder}"]) == 0
    with opened(browser, folder / "report.html") as page:
        yield page, folder


def test_every_link_leads_somewhere(packed_page):
    page, folder = packed_page
    links = page.locator("a[href]").evaluate_all("all => all.map(a => a.getAttribute('href'))")
    inside = {link[1:] for link in links if link.startswith("#")}
    files = {link for link in links if not link.startswith(("#", "https://"))}
    assert len(inside) > 20 and len(files) > 10
    ids = set(page.locator("[id]").evaluate_all("all => all.map(one => one.id)"))
    assert inside <= ids
    assert all((folder / name).is_file() for name in files)


def test_it_says_that_it_has_no_programs_and_offers_none(packed_page):
    page, _ = packed_page
    assert page.locator(".explorer").count() == 0
    assert page.get_by_text("programs", exact=False).count() > 0
    assert page.locator("a[href^='#problem=']").count() == 0


def test_a_curve_says_its_values_by_keyboard(packed_page):
    page, _ = packed_page
    frame = page.locator(".frame:has(> .panel-title:text-is('pass@1')):visible").first
    frame.locator("svg").focus()
    page.keyboard.press("ArrowRight")
    first = frame.get_by_role("status").inner_text()
    page.keyboard.press("ArrowRight")
    assert "pass@1" in first and frame.get_by_role("status").inner_text() != first


def test_a_narrow_screen_holds_it_and_nothing_is_asked_for(packed_page):
    page, _ = packed_page
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.seen == []
