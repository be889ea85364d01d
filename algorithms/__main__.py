"""`python -m algorithms` lists all algorithms: name, paper, family, needs and options.

`python -m algorithms NAME` prints what one needs and its files of conf/algo, with the meaning of
each option.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
from typing import Any

from omegaconf import OmegaConf
from rich.console import Console
from rich.table import Table

import algorithms
from algorithms.base import Needs


def main(names: list[str]) -> int:
    """Print the algorithms; returns the exit status."""
    if {"-h", "--help", "help"} & set(names):
        print((__doc__ or "").strip())
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
    families = {name: algorithms.load(name).__module__ for name in algorithms.names()}
    for name in sorted(families, key=lambda name: (families[name], name)):
        values = {k: v for k, v in algorithms.defaults(name).items() if k not in ("name", "core")}
        options = " ".join(f"{key}={value}" for key, value in values.items())
        family = families[name].rpartition(".")[2]
        listing.add_row(name, paper(name), family, needs(algorithms.make(name).needs), options)
    return listing


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
