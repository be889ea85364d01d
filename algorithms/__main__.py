"""`python -m algorithms` lists all algorithms: name, paper, family, needs and options.

`python -m algorithms NAME` prints what one needs and its files of conf/algo, with the meaning of
each option. `python -m algorithms page` prints docs/reference/algorithms.md.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
from pathlib import Path
from typing import Any

import pandas as pd
from omegaconf import OmegaConf
from rich.console import Console
from rich.table import Table

import algorithms
from algorithms.base import Needs

HEAD = """# Algorithms at a glance

`python -m algorithms page` writes this page from the comments of `conf/algo/NAME.yaml`; `python -m algorithms NAME` explains the options of one.

No learning rate is a paper's: it is 3e-4 with a bundled model, 1e-6 with a pretrained one (`conf/model/`), and studies tune it. The last column says what else is not as published, and why. Where it gives no reason, ours is mostly the value of related objectives (`conf/algo/_*.yaml`), so that arms differ in their loss.

The curve is pass@1 over 200 steps of [study `front`](../results/study-front.md), where it was measured: means over five seeds, all on one scale.

| name | paper | file | idea | curve | settings | what is as published, what is not |
|---|---|---|---|---|---|---|
"""  # noqa: E501
FRONT = Path(__file__).parents[1] / "docs" / "results" / "study-front"
BARS = "▁▂▃▄▅▆▇█"


def main(names: list[str]) -> int:
    """Print the algorithms; returns the exit status."""
    if {"-h", "--help", "help"} & set(names):
        print((__doc__ or "").strip())
        return 0
    if names == ["page"]:
        print(page(), end="")
        return 0
    try:
        for name in names:
            core = algorithms.load(name)
            where = f"{core.__module__}.{core.__name__}"
            print(f"{name} ({where}) needs {needs(algorithms.make(name).needs)}\n")
            print("\n".join(_files(name)))
        if not names:
            Console(width=None if Console().is_terminal else 160).print(table())
    except ValueError as mistake:  # an unknown name, or a file of conf/algo
        near = difflib.get_close_matches(name, algorithms.names(), n=1) if names else []
        print(f"error: {mistake}{''.join(f'; did you mean {n!r}?' for n in near)}", file=sys.stderr)
        return 2
    return 0


def table() -> Table:
    """One row for each algorithm, sorted by family."""
    listing = Table(show_lines=True)
    for head in ("name", "paper", "family", "needs", "options"):
        listing.add_column(head, no_wrap=head in ("name", "paper", "family"))
    for family, name in by_family():
        own = needs(algorithms.make(name).needs)
        listing.add_row(name, paper(name), family, own, " ".join(options(name)))
    return listing


def by_family() -> list[tuple[str, str]]:
    """File of algorithms/ and name of each algorithm, sorted."""
    names = algorithms.names()
    return sorted((algorithms.load(n).__module__.rpartition(".")[2], n) for n in names)


def options(name: str) -> list[str]:
    """key=value of each option, the learning rate first."""
    values = algorithms.defaults(name).items()
    return [f"{k}={v if v is not None else 'null'}" for k, v in values if k not in ("name", "core")]


def page() -> str:
    """docs/reference/algorithms.md: a row for each algorithm, from the comments of its file."""
    rows, drawn = [], curves()
    for family, name in by_family():
        at, curve = paper(name), drawn.get(name, "–")
        title, idea, note = header(name)
        link = f"[{at}](https://arxiv.org/abs/{at})" if at[0].isdigit() else at
        values = " ".join(options(name)[1:]) or "–"  # after the learning rate
        file = f"[{family}](../../algorithms/{family}.py)"
        row = (f"`{name}`", f"{title}, {link}", file, idea, curve, f"`{values}`", note)
        rows.append(f"| {' | '.join(row)} |")
    return HEAD + "\n".join(rows) + "\n"


def curves() -> dict[str, str]:
    """Algorithm → pass@1 at each evaluation of study `front` as bars; SPO in its paper's form."""
    arms = pd.read_parquet(FRONT / "runs.parquet", columns=["run", "arm"])
    counts = pd.read_parquet(FRONT / "counts.parquet", filters=[("main", "==", True)]).merge(arms)
    counts["arm"] = counts["arm"].replace({"spo": "spo_group_soft", "spo_mc": "spo"})
    counts["pass@1"] = counts["accepted"] / counts["judged"]
    scores = counts.groupby(["arm", "step"])["pass@1"].mean()
    bars = (scores / scores.max() * len(BARS)).astype(int).clip(upper=len(BARS) - 1)
    return {str(arm): "".join(BARS[each] for each in of) for arm, of in bars.groupby("arm")}


def header(name: str) -> tuple[str, str, str]:
    """The title, the idea, and the rest of the comment that opens the algorithm's file."""
    text = (algorithms.CONF / f"{name}.yaml").read_text().partition("defaults:")[0]
    said, _, idea = " ".join(line.lstrip("# ") for line in text.splitlines()).partition(" Idea: ")
    found = re.match(r"(.*?),? (?:arXiv \d{4}\.\d{5}|no paper)[.,:;]* *(.*)", said)
    title, note = found.groups() if found else (name, said)
    note = re.sub(r"Not from the papers?: the learning rates?\.", "", note)
    note = re.sub(r"(Not from the papers?: )the learning rates?(?:,? and|,) ", r"\1", note)
    return title.rstrip("."), idea, note.strip() or "as published"


def paper(name: str) -> str:
    """The first arXiv number in the file's opening comment, or "no paper" where it gives a reason.

    – if it has neither.
    """
    text = (algorithms.CONF / f"{name}.yaml").read_text().partition(f"name: {name}")[0]
    found = re.search(r"\d{4}\.\d{5}|^# (no paper): *\S", text, re.MULTILINE)
    return found[1] or found[0] if found else "–"


def needs(n: Needs) -> str:
    """The inputs that the trainer provides, and the data that it may learn from, in words."""
    words = {
        "groups": n.groups,
        "behaviour log-probs": n.behaviour,
        "reference": n.reference,
        f"critic ({n.critic})": n.critic != "none",
        "a forward pass before the update": n.policy,
        f"soft value of the prompt ({n.initial_value})": n.initial_value != "none",
        "continuations of its responses": n.step_values and not n.step_values.branches,
        "responses that branch": n.step_values and n.step_values.branches,
        "gradient of the entropy": n.entropy_graph,
        f"train.{n.share}": n.share,
        f"earlier weights ({', '.join(n.copies)})": n.copies,
        f"responses at most {n.max_lag} steps old": n.max_lag is not None,
        "may learn from the data set's programs": n.off_policy,
    }
    return ", ".join(word for word, needed in words.items() if needed) or "nothing"


def _files(name: str) -> list[str]:
    """The texts of an algorithm's file and, before it, of those in its defaults list."""
    text = (algorithms.CONF / f"{name}.yaml").read_text()
    values: Any = OmegaConf.create(text)
    bases = [base for base in values.get("defaults", []) if base != "_self_"]
    return [*(text for base in bases for text in _files(base)), f"# conf/algo/{name}.yaml\n{text}"]


if __name__ == "__main__":
    try:
        status = main(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has gone, as in `... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 141
    sys.exit(status)
