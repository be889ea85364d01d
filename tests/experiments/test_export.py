"""What the command that exports an adapter says of mistakes; what it writes: test_adapter_runs."""

import pytest

from experiments import export

MISTAKES = {
    "": "run=... is missing",
    "rn=x": "'rn=x': did you mean 'run'? write key=value, with a key of run, out",
    "run": "'run': did you mean run=VALUE? write key=value",
    "run=/nowhere": "run=/nowhere: not a run folder",
}


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_is_one_line(words, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["export", *words.split()])
    with pytest.raises(SystemExit) as ended:
        export.main()
    told = capsys.readouterr().err
    assert ended.value.code == 2
    assert told.startswith(f"error: {MISTAKES[words]}")
    assert told.count("\n") == 1
