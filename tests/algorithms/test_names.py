"""Every choice of `algo=`: its file, its core, its options, and the list of them."""

from dataclasses import fields
from typing import get_args

import pytest

import algorithms
from algorithms.__main__ import description, main, paper, table
from algorithms.base import Algorithm
from algorithms.spo import LossKind
from envs.command_line import parse_values

NO_PAPER = {"sft"}  # a control
OPENING = (
    "conf/algo/{0}.yaml opens with no arXiv number, before its line `name: {0}`. An objective "
    "without a paper is named in NO_PAPER of tests/algorithms/test_names.py, with the reason"
)


@pytest.mark.parametrize("name", algorithms.names())
def test_its_files_give_every_option_of_its_core(name):
    core, options = algorithms.load(name), algorithms.defaults(name)
    assert issubclass(core, Algorithm)
    assert options["name"] == name
    assert set(options) == {field.name for field in fields(core.Config)}
    assert parse_values(core.Config, options, "algo") == algorithms.make(name).config


@pytest.mark.parametrize("name", sorted(set(algorithms.names()) - NO_PAPER))
def test_its_file_opens_with_its_paper(name):
    assert paper(name) != "–", OPENING.format(name)


def test_an_unknown_name_is_answered_with_the_choices():
    with pytest.raises(ValueError, match=r"unknown algorithm 'gpo'; there are: .*ppo.*spo"):
        algorithms.load("gpo")


@pytest.mark.parametrize(
    ("core", "line"),
    [
        ("core: KLPQ", "core=KLPQ: write package.module.Class"),
        (
            "core: algorithms.klpq.KLPQ",
            "core=algorithms.klpq.KLPQ: algorithms.klpq cannot be imported: ModuleNotFoundError: "
            "No module named 'algorithms.klpq'",
        ),
        (
            "core: algorithms.grpo.KLPQ",
            "core=algorithms.grpo.KLPQ: algorithms.grpo has no algorithm KLPQ; it has GRPO, CPPO",
        ),
        (
            "core: algorithms.grpo.GRPOConfig",
            "core=algorithms.grpo.GRPOConfig: algorithms.grpo has no algorithm GRPOConfig; "
            "it has GRPO, CPPO",
        ),
        ("", "core=: write package.module.Class"),
    ],
)
def test_a_wrong_core_is_one_line_of_the_list(core, line, tmp_path, monkeypatch, capsys):
    (tmp_path / "wrong.yaml").write_text(f"# arXiv 2402.14740\nname: wrong\n{core}\n")
    monkeypatch.setattr(algorithms, "CONF", tmp_path)
    for words in ([], ["wrong"]):
        monkeypatch.setattr("sys.argv", ["algorithms", *words])
        with pytest.raises(SystemExit) as end:
            main()
        assert end.value.code == 2
        assert capsys.readouterr().err == f"error: conf/algo/wrong.yaml: {line}\n"


@pytest.mark.parametrize("name", algorithms.names())
def test_the_description_of_one_has_each_option_and_its_choices(name):
    lines = description(name).splitlines()
    printed = {line.split("=")[0].strip() for line in lines if line.startswith("  algo.")}
    assert printed == {f"algo.{key}" for key in algorithms.defaults(name)} - {
        "algo.core",
        "algo.name",
    }
    if name == "spo":
        others = ", ".join(kind for kind in get_args(LossKind) if kind != "cross_entropy")
        assert f"  algo.loss=cross_entropy  (or {others})" in lines
        assert lines[-1] == "The options are described in algorithms/spo.py, algorithms/base.py."


def test_the_list_of_algorithms():
    rows = {row[0]: row for row in zip(*(column.cells for column in table().columns), strict=True)}
    assert sorted(rows) == algorithms.names()
    _, number, family, needs, data, options = rows["ppo"]
    assert (number, family) == ("1707.06347", "ppo")
    assert needs == "behaviour log-probs, reference, critic (separate)"
    assert data == "its own, of any age"
    assert "lam=1.0" in options.split()
    off_policy = "its own, of any age, and the data set's programs"
    assert rows["sft"][3:5] == ("train.offline_share", off_policy)
