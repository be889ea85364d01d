"""Every choice of `algo=`: its file, its core, its options, and the list of them."""

import re
from dataclasses import fields

import pytest

import algorithms
from algorithms.__main__ import main, row
from algorithms.base import Algorithm
from envs.command_line import parse_values

NO_PAPER = {"sft"}  # a control


@pytest.mark.parametrize("name", algorithms.names())
def test_its_files_give_every_option_of_its_core(name):
    core, options = algorithms.load(name), algorithms.defaults(name)
    assert issubclass(core, Algorithm)
    assert options["name"] == name
    assert set(options) == {field.name for field in fields(core.Config)}
    assert parse_values(core.Config, options, "algo") == algorithms.make(name).config


@pytest.mark.parametrize("name", sorted(set(algorithms.names()) - NO_PAPER))
def test_its_file_opens_with_its_paper(name):
    assert re.search(r"arXiv \d{4}\.\d{5}", row(name))


def test_an_unknown_name_is_answered_with_the_choices():
    with pytest.raises(ValueError, match=r"unknown algorithm 'gpo'; there are: .*ppo.*spo"):
        algorithms.load("gpo")


def test_the_list_and_one_of_it(capsys):
    assert main([]) == 0
    found = capsys.readouterr().out
    assert "ppo           PPO, arXiv 1707.06347" in found
    assert "needs behaviour log-probs, reference, critic (separate)" in found
    assert main(["dapo"]) == 0
    assert "clip_high: 0.28" in capsys.readouterr().out
    assert main(["gpo"]) == 2
