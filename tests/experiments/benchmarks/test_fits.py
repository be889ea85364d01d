"""The memory table of docs/guide/gpus.md is the one that its command prints."""

import re
from pathlib import Path

import pytest

from experiments.benchmarks import fits
from experiments.learner.shapes import shape_of_json

PAGE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "gpus.md"
PARAMETERS = {  # as the models' pages and files state them
    "0.5 B": 494_032_768,
    "1.5 B": 1_543_714_304,
    "1.7 B": 1_720_574_976,
    "7 B": 7_615_616_512,
    "8 B": 8_030_261_248,
}


def test_the_page_has_the_table_of_the_command():
    assert fits.table(fits.Options()) in PAGE.read_text("utf-8")


def test_the_models_have_as_many_parameters_as_published():
    shapes = {name: shape_of_json(values) for name, values in fits.MODELS.items()}
    assert {name: shape.parameters for name, shape in shapes.items()} == PARAMETERS


def test_vllms_share_counts_and_longer_responses_need_more():
    shape, config = shape_of_json(fits.MODELS["1.5 B"]), fits._composed("ppo", fits.Options())
    assert fits._cell(shape, config) == "none (86)"  # 54.7 GiB held, and 40 % of the GPU
    longer = fits._composed("ppo", fits.Options(response_tokens=8192))
    assert int(re.findall(r"\d+", fits._cell(shape, longer))[0]) > 86


@pytest.mark.parametrize("algo", ["spo", "grpo"])
def test_spo_and_grpo_need_the_same(algo):
    config = fits._composed(algo, fits.Options())
    assert fits._cell(shape_of_json(fits.MODELS["1.7 B"]), config) == "80 (64)"
