"""What the pages for readers point at is there."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "assets").rglob("*.md")]
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def test_every_link_of_a_page_leads_to_a_file_of_the_repository():
    links = [(page, link) for page in PAGES for link in LINK.findall(page.read_text("utf-8"))]
    own = [(page, link) for page, link in links if "://" not in link]
    assert len(PAGES) > 10 and len(own) > 40
    lost = [f"{page.name}: {link}" for page, link in own if not (page.parent / link).exists()]
    assert lost == []
