"""The steps of the Dockerfile on this machine, in place of an image."""

import json
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow  # installs torch and all else: minutes
def test_the_image_s_steps_install_and_run_the_harness_in_a_fresh_environment(tmp_path):
    lines = dict(re.findall(r"^(RUN make|CMD) (.*)$", (ROOT / "Dockerfile").read_text(), re.M))
    subprocess.run(["git", "clone", "--quiet", ROOT, tmp_path / "app"], check=True)
    subprocess.run(["make", lines["RUN make"]], cwd=tmp_path / "app", check=True)
    command = [*json.loads(lines["CMD"]), "ARGS=steps=2 task.choose_problems=4 eval.samples=2"]
    done = subprocess.run(command, cwd=tmp_path / "app", capture_output=True, text=True)
    assert done.returncode == 0 and "pass@1" in done.stdout, done.stderr
    folders = [*(tmp_path / "app/outputs").glob("*/*/run.json")]
    assert [json.loads(file.read_text())["status"] for file in folders] == ["finished"]
