"""Every choice of `algo=`: its file, its core, its options, and the list of them."""

from dataclasses import fields

import pytest

import algorithms
from algorithms.__main__ import header, main, page, paper, table
from algorithms.base import Algorithm
from envs.command_line import parse_values

OPENING = (
    "conf/algo/{0}.yaml opens with no arXiv number, before its line `name: {0}`. An objective "
    "without a paper has the line `# no paper: REASON` there"
)


@pytest.mark.parametrize("name", algorithms.names())
def test_its_files_give_every_option_of_its_core(name):
    core, options = algorithms.load(name), algorithms.defaults(name)
    assert issubclass(core, Algorithm)
    assert options["name"] == name
    assert set(options) == {field.name for field in fields(core.Config)}
    assert parse_values(core.Config, options, "algo") == algorithms.make(name).config


@pytest.mark.parametrize("name", algorithms.names())
def test_its_file_opens_with_its_paper_or_the_reason_why_it_has_none_and_its_idea(name):
    assert paper(name) != "–", OPENING.format(name)
    assert header(name)[1], f"conf/algo/{name}.yaml has no comment `# Idea: …`"


def test_the_page_of_all_algorithms_says_what_their_files_say():
    written = (algorithms.CONF.parents[1] / "docs/reference/algorithms.md").read_text()
    assert written == page(), "python -m algorithms page > docs/reference/algorithms.md"


def test_a_reason_stands_for_a_paper(tmp_path, monkeypatch):
    monkeypatch.setattr(algorithms, "CONF", tmp_path)
    texts = {"# no paper: a control": "no paper", "# no paper:": "–", "# 2402.14740": "2402.14740"}
    for opening, found in texts.items():
        (tmp_path / "mine.yaml").write_text(f"{opening}\nname: mine\n")
        assert paper("mine") == found


def test_an_unknown_name_is_answered_with_the_choices():
    with pytest.raises(ValueError, match=r"unknown algorithm 'gpo'; there are: .*ppo.*spo"):
        algorithms.load("gpo")


@pytest.mark.parametrize("names", [["foo"], ["spo", "grpoo"], [""]])
def test_a_wrong_name_on_the_command_line_is_one_line(names, capsys):
    assert main(names) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: unknown algorithm {names[-1]!r}") and said.count("\n") == 1
    assert ("did you mean 'grpo'" in said) == (names[-1] == "grpoo")


def test_the_list_of_algorithms():
    rows = {row[0]: row for row in zip(*(column.cells for column in table().columns), strict=True)}
    assert sorted(rows) == algorithms.names()
    _, number, family, needs, options = rows["ppo"]
    assert (number, family) == ("1707.06347", "ppo")
    assert needs == "behaviour log-probs, reference, critic (separate)"
    assert "lam=1.0" in options.split()
    assert rows["sft"][3] == "train.offline_share, may learn from the data set's programs"
