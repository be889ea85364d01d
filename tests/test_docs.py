"""What the pages for readers point at is there."""

import re
import shlex
from pathlib import Path

from experiments.config.composition import config_of, jobs_of

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


def test_every_run_that_a_page_shows_composes():
    text = "\n".join(page.read_text("utf-8") for page in PAGES if "results" not in page.parts)
    blocks = "\n".join(re.findall(r"^```\w*\n(.*?)^```$", text, re.M | re.S)).replace("\\\n", " ")
    found = re.findall(r"^(?!\$)(?:.*\s)?(?:\.venv/bin/)?python run\.py (.*)$", blocks, re.M)
    lines = [shlex.split(line, comments=True) for line in found]
    own = re.compile(r"[A-Z]{3,}|\.\.\.|…|^--|^hydra|[$]")  # what the reader fills in; flags
    shown = [line for line in lines if not any(map(own.search, line))]
    assert len(shown) > 20
    for line in shown:
        for job in jobs_of([key for key in line if not key.startswith(("jobs=", "plan="))]):
            config_of(job)
