import pytest

from analysis.answer import answer, matrix
from analysis.design import design_table
from analysis.runs import load_run
from analysis.sections import sections

SMALL = {"problems": 30, "samples": 10, "every": 20}


@pytest.fixture
def section(tmp_path, make_run):
    skills = {"spo": 6.0, "ppo": 1.5}
    paths = [
        make_run(tmp_path, algo, seed, skill=skill, **SMALL)
        for algo, skill in skills.items()
        for seed in range(3)
    ]
    return sections([load_run(path) for path in paths])[0]


def test_the_answer_names_who_is_first_and_by_how_much(section):
    said = answer(section)[0]
    best = section.pairs[0].turned()  # spo - ppo
    assert said.startswith("pass@1: spo (0.")
    assert "is in the first tier alone" in said
    assert f"spo − ppo: +{best.difference.mean:.3f} [+" in said
    assert "3 seeds, 30 problems" in said


def test_the_matrix_is_row_minus_column_with_a_star_where_separated(section):
    heading, rows = matrix(section, "pass@1")
    assert heading == ["row − column", "ppo", "spo"]
    assert rows[0][1] == rows[1][2] == ""
    assert rows[0][2].startswith("−0.")
    assert rows[1][1].startswith("+0.")
    assert all(cell.endswith(" *") for cell in (rows[0][2], rows[1][1]))


def test_what_the_design_could_see_has_parts_that_add_up(section):
    table = design_table(section.ends, section.pairs, 0.05).set_index("metric")
    parts = [f"of_{part}" for part in ("seeds", "problems", "interaction", "sampling")]
    assert table.loc["pass@1", parts].sum() == pytest.approx(1)
    assert table.loc["pass@1", "smallest_difference"] > 0.05
    assert table.loc["pass@1", "samples_needed"] > 10


def test_one_seed_is_no_answer(tmp_path, make_run):
    paths = [make_run(tmp_path, algo, 0, **SMALL) for algo in ("spo", "ppo")]
    (section,) = sections([load_run(path) for path in paths])
    (said,) = answer(section)
    assert "luck of one training" in said
    assert not len(design_table(section.ends, section.pairs, 0.05))
