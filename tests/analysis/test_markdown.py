from analysis.markdown import table


def test_cells_stay_as_they_are_and_a_pipe_ends_none():
    lines = table(["", "KL", "x"], [["a|b", "0.10", "−1"], ["1e5", "–", ""]]).splitlines()
    cells = [[cell.strip() for cell in line.replace("\\|", "¦").split("|")[1:-1]] for line in lines]
    assert cells[0] == ["", "KL", "x"]
    assert cells[2:] == [["a¦b", "0.10", "−1"], ["1e5", "–", ""]]
    assert [len(line.replace("\\|", "¦ ")) for line in lines] == [len(lines[0])] * 4
    assert [cell.endswith(":") for cell in lines[1].split("|")[1:-1]] == [False, True, True]
