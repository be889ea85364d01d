import pytest

from analysis.markdown import table


def cells(line):
    return [cell.strip() for cell in line.replace("\\|", "¦").split("|")[1:-1]]


def test_cells_stay_as_they_are_and_a_pipe_ends_none():
    heading, rule, *rows = table(
        ["", "KL", "x"], [["a|b", "0.10", "−1"], ["1e5", "0.2", ""]]
    ).splitlines()
    assert cells(heading) == ["", "KL", "x"]
    assert list(map(cells, rows)) == [["a¦b", "0.10", "−1"], ["1e5", "0.2", ""]]
    assert {len(line.replace("\\|", "¦ ")) for line in (heading, rule, *rows)} == {len(heading)}
    assert [cell.endswith(":") for cell in cells(rule)] == [False, True, True]


def test_a_cell_is_one_line():
    assert cells(table(["a"], [["b\n  c"]]).splitlines()[2]) == ["b c"]


def test_a_row_of_other_columns_is_refused():
    with pytest.raises(ValueError, match="the 1 columns of its heading"):
        table(["a"], [["b", "c"]])
