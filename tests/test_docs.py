"""What the pages for readers point at is there."""

import json
import re
import shlex
import subprocess
import sys

import pandas
import pytest

from experiments.config.composition import config_of, jobs_of
from tests.command_line import ROOT, SMALL

PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "assets").rglob("*.md")]
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)]*))?\)")
PARTS = (ROOT / "docs/recipes.md").read_text("utf-8").split("\n## ")[1:-1]  # the last: a GPU
RECIPES = {part.partition("\n")[0]: part.split("```\n")[1] for part in PARTS}
FAST = ("Two commands", "Your own rows", "A new loss")  # the others' kinds have fast tests
TINY = f"""#!{sys.executable}
import os, sys
tiny = [*{SMALL}, "seed=0"] * (sys.argv[1] == "run.py")
given = {{word.partition("=")[0]: word for word in sys.argv[1:] + tiny}}
os.execv(sys.executable, [sys.executable, *given.values()])
"""


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
    own = re.compile(r"[A-Z]{3,}|\.\.\.|…|^--|^hydra|[$]|half_blame")  # the reader's; flags
    shown = [line for line in lines if not any(map(own.search, line))]
    assert len(shown) > 20
    for line in shown:
        for job in jobs_of([key for key in line if not key.startswith(("jobs=", "plan="))]):
            config_of(job)


@pytest.mark.parametrize(
    "recipe", [pytest.param(r, marks=() if r in FAST else pytest.mark.slow) for r in RECIPES]
)
def test_the_first_steps_of_a_recipe_run_as_it_stands(recipe, tmp_path):
    """Pasted into a tree of its own, whose .venv/bin/python makes each run a tiny one."""
    names = "algorithms analysis conf constraints.txt envs experiments Makefile pyproject.toml"
    subprocess.run(["cp", "-r", *names.split(), "run.py", "tests", tmp_path], cwd=ROOT, check=True)
    (tmp_path / "assets").symlink_to(ROOT / "assets")
    (python := tmp_path / ".venv" / "bin" / "python").parent.mkdir(parents=True)
    python.write_text(TINY)
    python.chmod(0o755)
    (tmp_path / ".venv" / ".ready").touch()
    block = RECIPES[recipe]
    done = subprocess.run(["bash", "-ec", block], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("a − b") == block.count("make compare")
    infos = map(json.loads, (file.read_text() for file in tmp_path.glob("outputs/*/*/run.json")))
    algos = (re.findall(r" algo=(\S+)", block) or ["spo"])[0].split(",")
    assert {info["algo"]: info["status"] for info in infos} == dict.fromkeys(algos, "finished")
    for evals in map(pandas.read_parquet, tmp_path.glob("outputs/*/*/evals.parquet")):
        assert set(evals["step"]) == {0, 1} and "INFRA_ERROR" not in set(evals["verdict"])
