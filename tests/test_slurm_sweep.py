"""A sweep whose jobs submitit starts, as it does under Slurm: its table, and the same once more."""

import json

import pytest

from tests.command_line import SMALL, call

pytest.importorskip(
    "hydra_plugins.hydra_submitit_launcher", reason="needs pip install -e '.[launch]'"
)


@pytest.mark.slow
def test_jobs_end_in_one_table_and_go_on_where_they_are(tmp_path):
    given = ["-m", "hydra/launcher=submitit_local", *SMALL, "algo=grpo", f"output_dir={tmp_path}"]
    done = call(*given, "seed=0,1", "model.path=assets/nano,/nowhere")
    assert done.returncode == 1, done.stderr
    rows = [line.split("│") for line in done.stdout.splitlines() if line.startswith("│")]
    assert [row[2].strip() for row in rows] == ["finished", "failed", "finished", "failed"]
    assert "/nowhere" in done.stdout
    again = call(*given, "seed=0,1,2")
    assert again.returncode == 0, again.stderr
    infos = [json.loads(file.read_text()) for file in tmp_path.glob("mini/*/run.json")]
    finished = [info["seed"] for info in infos if info["status"] == "finished"]
    assert sorted(finished) == [0, 1, 2]  # two were left as they are
