"""What the pages for readers point at is there."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "assets").rglob("*.md")]
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)]*))?\)")


def headings(page):
    """The anchors that GitHub gives a page's headings."""
    found = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


def test_every_link_of_a_page_leads_to_a_file_of_the_repository_and_to_a_heading():
    links = [(page, *link) for page in PAGES for link in LINK.findall(page.read_text("utf-8"))]
    links = [(page, to, at) for page, to, at in links if "://" not in to]
    own = [(page, page.parent / to if to else page, at) for page, to, at in links]
    assert len(PAGES) > 10 and len(own) > 60
    assert [f"{page.name}: {to}" for page, to, _ in own if not to.exists()] == []
    own = [(page, to, at) for page, to, at in own if at and to.suffix == ".md"]
    assert len(own) > 20
    assert [f"{page.name}: {to.name}#{at}" for page, to, at in own if at not in headings(to)] == []
