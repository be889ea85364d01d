"""Whole runs from the command line: on rows of a data set, and mistakes that only show later."""

import json
import resource

import pandas

from tests.command_line import SMALL, merged


def test_a_full_disk_is_one_line(tmp_path, call_here):
    """The weights of the bundled model are larger than this process may make a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    try:
        done = call_here(*SMALL, "algo=grpo", f"output_dir={tmp_path}/out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "the disk is full" in done.stderr.splitlines()[-1]
    (folder,) = (tmp_path / "out" / "mini").iterdir()
    assert json.loads((folder / "run.json").read_text())["status"] == "failed"
    assert len(pandas.read_parquet(folder / "evals.parquet")) == 2 * 2 * 2
    assert list((folder / "checkpoints").iterdir()) == []


def test_rows_of_a_public_data_set_go_the_whole_way(tmp_path, call_here):
    held = json.dumps({"inputs": ["1 2\n", "3 4\n"], "outputs": ["3\n", "7\n"]})
    program = json.dumps(["a, b = map(int, input().split())\nprint(a + b)"])
    names = [" ".join(f"{w}{i}" for w in ("please", "print", "the", "sum")) for i in range(40)]
    rows = [{"question": f"{name}.", "input_output": held} for name in names]
    rows = [row | {"solutions": program} for row in rows] + [{"question": "x", "input_output": ""}]
    (file := tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    given = merged(*SMALL, "steps=2", "model=nano", f"output_dir={tmp_path}/out")
    given += ["task.max_response_tokens=48", "train.offline_share=0.5"]
    done = call_here("algo=spo", "task=taco", f"task.path={file}", *given)
    assert done.returncode == 0, done.stderr
    assert "of 41 rows; left out: input_output is empty 1" in done.stderr
    (folder,) = (tmp_path / "out" / "taco").iterdir()
    assert done.stdout.endswith(f"report: make report RUNS={folder.parent}\n")
    facts = json.loads((folder / "run.json").read_text())
    assert facts["task"] == {
        "rows_read": 41,
        "left_out": {"input_output is empty": 1},
        "first_left_out": {"input_output is empty": f"line 41 of {file}"},
        "changed": {},
        "decontaminated": [],
    }
    metrics = pandas.read_parquet(folder / "metrics.parquet")
    assert list(metrics["offline_share"]) == [0.5, 0.5]
