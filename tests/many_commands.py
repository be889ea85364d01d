"""Many commands in one process of their own, each as if it had one to itself.

What a command imports can so be told from what tests import. As a program: reads a JSON list of
commands from standard input and writes the list of their answers.
"""

import fcntl
import json
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from unittest.mock import patch

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("torch", "transformers", "vllm")
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "DOCKER_HOST": "unix:///nowhere/docker.sock",
    "OMP_NUM_THREADS": "1",
    "COLUMNS": "80",
}


def answers(commands, folder: Path):
    """Run the commands in `folder`: {status, out, err, cpu_s, heavy} of each.

    `commands`: pairs of the words after `python`, and one of CIRCUMSTANCES or None. `heavy` are
    imports so far.
    """
    done = subprocess.run(
        [sys.executable, __file__, str(folder)],
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, **ENVIRONMENT, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@contextmanager
def disk_almost_full():
    usage = shutil.disk_usage("/")._replace(free=10_000_000)
    with patch("shutil.disk_usage", lambda path: usage):
        yield


@contextmanager
def folder_unreadable():
    """As for another user than root, whom nothing stops."""
    real = os.access
    with patch("os.access", lambda path, mode: Path(path).name != "locked" and real(path, mode)):
        yield


@contextmanager
def run_still_active():
    handle = os.open("outputs/mini/run", os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    yield
    os.close(handle)


CIRCUMSTANCES = {  # by the mistake of docs/reference/errors.md
    "no room for the checkpoints": disk_almost_full,
    "a folder that may not be read": folder_unreadable,
    "a model that may not be read": folder_unreadable,
    "a run that is still active": run_still_active,
}


def main() -> None:
    """Answer all commands."""
    sys.path[0] = str(ROOT)  # as for a command that starts there
    folder, commands = Path(sys.argv[1]), json.load(sys.stdin)
    stdout = os.dup(1)
    warnings.filterwarnings("ignore", message=".*found in sys.modules.*")
    os.chdir(folder)
    prepare(folder)
    found = [answer(*command) for command in commands]
    with os.fdopen(stdout, "w") as output:
        json.dump(found, output)


def prepare(folder: Path) -> None:
    """Make what the commands find: files of rows, folders of models, a run; a bare machine."""
    from omegaconf import OmegaConf

    from experiments.config import dependencies, preflight
    from experiments.config.composition import config_of

    dependencies.vllm_version = lambda: None
    preflight.GPU_DEVICES = ()
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    rows = ['{"question": "?", "input_output": "{", "solutions": "[]"}', "no JSON"]
    (folder / "bad.jsonl").write_text("\n".join(rows) + "\n")
    (folder / "other.jsonl").write_text('{"text": "Print 1.", "cases": []}\n')
    nested = {"text": "Print 1.", "cases": [{"stdin": "", "stdout": "1"}, {"stdin": "2"}]}
    (folder / "nested.jsonl").write_text(json.dumps(nested) + "\n")
    calls = {"text": "Add.", "entry": "add", "args": [[1, 2]], "returns": [3]}
    calls["right"] = ["def add(a, b):\n    return a + b"]
    (folder / "calls.jsonl").write_text(json.dumps(calls) + "\n")
    tests = json.dumps({"inputs": ["1", "2"], "outputs": ["1", "2"]})
    row = {"question": "Print it.", "input_output": tests, "solutions": "[]"}
    levels = [json.dumps(row | {"difficulty": level}) + "\n" for level in ("EASY", "HARD")]
    (folder / "levels.jsonl").write_text("".join(levels))
    sizes = {"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28}
    heads = {"num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064}
    (folder / "large").mkdir()
    (folder / "large" / "config.json").write_text(
        json.dumps({"model_type": "qwen2"} | sizes | heads)
    )
    # what the others hold is not looked at
    for name in ("model.safetensors", "tokenizer.json", "chat_template.jinja"):
        (folder / "large" / name).touch()
    shutil.copytree(folder / "large", folder / "plain")
    (folder / "plain" / "chat_template.jinja").unlink()
    shutil.copytree(folder / "large", folder / "unclosed")
    (folder / "unclosed" / "chat_template.jinja").write_text("{% for message in messages %}")
    for name in ("empty", "locked", "untyped", "outputs/mini/run"):
        (folder / name).mkdir(parents=True)
    (folder / "untyped" / "config.json").write_text("{}")
    (folder / "rows.jsonl.gz").touch()
    (folder / "list.yaml").write_text("- question: q\n")
    (folder / "answer.py").write_text("print(1)\n")
    run = folder / "outputs" / "mini" / "run"
    (run / "config.yaml").write_text(OmegaConf.to_yaml(asdict(config_of([]))))
    (run / "run.json").write_text('{"status": "interrupted"}')
    shutil.copytree(run, run.with_name("damaged"))
    (run.with_name("damaged") / "run.json").write_text("")
    shutil.copytree(run, older := run.with_name("older"))
    values = OmegaConf.load(run / "config.yaml")
    values.train.gone = 3
    (older / "config.yaml").write_text(OmegaConf.to_yaml(values))


def answer(command, circumstance):
    """Run one command."""
    begin = time.process_time()
    with captured() as read, CIRCUMSTANCES.get(circumstance, nullcontext)():
        status = status_of(command)
        sys.stdout.flush()
        sys.stderr.flush()
        out, err = read()
    used = time.process_time() - begin
    heavy = [name for name in HEAVY if name in sys.modules]
    return {"status": status, "out": out, "err": err, "cpu_s": used, "heavy": heavy}


def status_of(command) -> int:
    import run

    try:
        if command[0] == "run.py":
            sys.argv = command
            run.main()
        elif command[0] == "check":  # as far as before the run starts
            run.check(command[1:])
        else:
            sys.argv = command[1:]
            runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


@contextmanager
def captured():
    """Send standard output and error to files; yield a function that reads them."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        kept = [os.dup(1), os.dup(2)]
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)

        def read():
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode())
            return texts

        try:
            yield read
        finally:
            for number, handle in zip((1, 2), kept, strict=True):
                os.dup2(handle, number)
                os.close(handle)


if __name__ == "__main__":
    main()
