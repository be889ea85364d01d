"""Golden runs: the numbers of commit 2c01db0b, which no change of structure may move.

    python -m tests.golden                     check all parts (`make golden`)
    python -m tests.golden only=runs.spo,data  check parts whose names begin so
    python -m tests.golden record=true         write the records anew, on purpose and with a reason

Parts: `runs.NAME` are runs of five steps (metrics, evaluations, weights), `objectives` one for each
choice of `algo`, `data` the problems of every data set, `verdicts` those on real rows, `report` the
CSV files made of packed studies, and `programs` the attack and honest programs of the tests.

A record of runs is exact on a processor of the kind that recorded it. On others log-probs differ
in their last bits, so numbers are compared to 1e-3 and digests are not; a token near a tie may
still be drawn otherwise, and that run then differs. (The records were made at f91253e8, whose
numbers were those of 2c01db0b to the bit. Since then objectives, distinct accepted programs at
equal budget and counts of offline programs were added, and SPO has another default.)
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RECORDS = Path(__file__).parent / "records"
DATA = Path(os.environ.get("SPO_BENCH_DATA") or ROOT.parent / "shared" / "data")
TOLERANCE = 1e-3

SMALL = [
    *("steps=5", "train.prompts=8", "task.train_problems=64", "task.choose_problems=8"),
    *("eval.every=0", "eval.samples=4", "eval.k=[1,4]", "eval.kl_samples=2", "sandbox=embedded"),
]
# name → the command lines of a run; {out}: the folder of all of them
RUNS = {
    "spo": "algo=spo train.keep_samples=true",
    "ppo": "algo=ppo train.minibatches=2",
    "grpo": "algo=grpo eval.further_temperatures=[1.0]",
    "half_online": "algo=spo train.offline_share=0.5",
    "lag_replay": "algo=grpo train.lag=3 train.replay_share=0.25 train.correction=truncated",
    "monte_carlo": "algo=spo algo.q0=monte_carlo algo.q0_samples=4",
    "sft": "algo=sft train.offline_share=1.0",
    "lora": "algo=spo model.adapter=lora",
    "turns": "algo=ppo task=mini_feedback task.turns=3 train.prompts=4",
    "curriculum": "algo=grpo train.curriculum=band train.resample_zero_variance=true",
    "bfloat16": "algo=grpo model.dtype=bfloat16",
    "ray": "algo=spo runtime=ray runtime.engines=2",
    "torchrun": "algo=grpo runtime=torchrun",
    "frozen": "algo=ppo replay.frozen=true replay.from_runs=[{out}/spo]",
}
# algo → what it cannot do without
EXTRA = {
    "sft": "train.offline_share=1.0",
    "luffy": "train.offline_share=0.5",
    "srft": "train.offline_share=0.5",
    "chord": "train.offline_share=0.5",
    "rto": "algo.dpo_model=assets/nano",
}
NOT_EXACT = ("time/", "memory/")  # columns that no two runs share


def main(arguments: list[str]) -> int:
    """Check or record; returns the exit status."""
    values = dict(argument.split("=", 1) for argument in arguments)
    only = tuple(values.get("only", "").split(","))
    record = values.get("record") == "true"
    with tempfile.TemporaryDirectory(prefix="golden-") as out:
        wanted = {
            name: measure
            for name, measure in parts(Path(out))
            if name.startswith(only) or needed(name, only)
        }
        if not wanted:
            raise SystemExit(
                f"only={','.join(only)}: no part begins so: runs.NAME, objectives, data, …"
            )
        # two at a time, for two cores: the runs, each a process of its own, beside the rest
        runs = [name for name in wanted if name.startswith("runs.")]
        rest = [name for name in wanted if name not in runs]
        with ThreadPoolExecutor(1) as beside:
            ends = beside.submit(lambda: [settle(name, wanted[name], record) for name in runs])
            faults = sum(settle(name, wanted[name], record) for name in rest)
            faults += sum(ends.result())
    return int(faults > 0)


def settle(name: str, measure: Callable[[], Any], record: bool) -> bool:
    """Measure a part and compare it, or record it; return whether it differs."""
    start = time.monotonic()
    found = measure()
    seconds = time.monotonic() - start
    if found is None:
        print(f"{name}: skipped", flush=True)
        return False
    found = json.loads(json.dumps(found))
    file = RECORDS / f"{name}.json"
    if record:
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(found, indent=0, sort_keys=True) + "\n")
        print(f"{name}: recorded", flush=True)
        return False
    lines = [f"    {line}" for line in compared(json.loads(file.read_text()), found)]
    print(
        f"{name}: {'differs' if lines else 'same'} ({seconds:.0f} s)",
        *lines[:20],
        sep="\n",
        flush=True,
    )
    return bool(lines)


def needed(name: str, only: tuple[str, ...]) -> bool:
    """Return whether a requested part replays the run `name`."""
    return name == "runs.spo" and any("runs.frozen".startswith(part) for part in only if part)


def parts(out: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the name of each part, and the function that measures it."""
    for name, line in RUNS.items():
        yield f"runs.{name}", lambda name=name, line=line: run(name, line, out)
    yield "objectives", lambda: objectives(out)
    yield "data", data_sets
    yield "verdicts", verdicts
    yield "report", lambda: reports(out)
    yield "programs", programs


def run(name: str, line: str, out: Path) -> dict[str, Any]:
    """Train by the command line and return what its folder holds."""
    given = [*SMALL, *line.format(out=out).split(), f"output_dir={out}/{name}.runs"]
    command = [sys.executable, "run.py", *given]
    if "runtime=torchrun" in given:
        # a port of its own, or two checks at once meet on one
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        command = [sys.executable, *launch, "run.py", *given]
    execute(command)
    (folder,) = (path.parent for path in (out / f"{name}.runs").glob("*/*/run.json"))
    (out / name).symlink_to(folder)
    return contents(folder)


def objectives(out: Path) -> dict[str, Any]:
    """Train with each choice of `algo`, all in one process."""
    names = sorted(file.stem for file in (ROOT / "conf/algo").glob("[a-z]*.yaml"))
    small = [*SMALL, "train.prompts=4", "task.choose_problems=2", "eval.samples=1", "eval.k=[1]"]
    found = {}
    plain = [name for name in names if name not in EXTRA]
    batches = [(plain, "")] + [([name], more) for name, more in EXTRA.items()]
    for group, more in batches:
        given = [*small, f"algo={','.join(group)}", *more.split(), f"output_dir={out}/objectives"]
        execute([sys.executable, "run.py", "-m", *given])
    for file in (out / "objectives").glob("*/*/run.json"):
        found[file.parent.name.rpartition("-s0-")[0]] = contents(file.parent)
    assert sorted(found) == names, set(names) - set(found)
    return found


def execute(command: list[str]) -> None:
    """Run a command in the tree's root; show its output if it fails. The last of a key holds."""
    command = [*{word.partition("=")[0]: word for word in command}.values()]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")


def contents(folder: Path) -> dict[str, Any]:
    """Return a run's metrics, evaluations and the digest of its weights."""
    import pandas as pd
    from safetensors.numpy import load_file

    metrics = pd.read_parquet(folder / "metrics.parquet")
    kept = [name for name in metrics if not name.startswith(NOT_EXACT)]
    rows = {name: [plain(value) for value in metrics[name]] for name in sorted(kept)}
    evals = pd.read_parquet(folder / "evals.parquet").drop(columns="cpu_s")
    evals = evals.sort_values(["step", "problem", "sample"], kind="stable")
    weights = hashlib.sha256()
    for file in sorted((folder / "checkpoints" / "final").glob("*.safetensors")):
        # bfloat16 has no numpy type: the file's bytes stand for such weights
        if "bfloat16" in (folder / "config.yaml").read_text():
            weights.update(file.read_bytes())
            continue
        for name, tensor in sorted(load_file(file).items()):
            weights.update(name.encode() + tensor.tobytes())
    return {
        "cpu": cpu(),
        "metrics": rows,
        "evals": {name: digest([plain(value) for value in evals[name]]) for name in sorted(evals)},
        "weights": weights.hexdigest()[:16],
    }


def cpu() -> str:
    """Return what decides on a log-prob's last bits: torch, its instructions, and the processor."""
    import torch

    facts = dict.fromkeys(("vendor_id", "cpu family", "model"), "?")
    for line in Path("/proc/cpuinfo").read_text().splitlines() if sys.platform == "linux" else ():
        name, _, value = line.partition(":")
        if name.strip() in facts:
            facts[name.strip()] = value.strip()
    capability = torch.backends.cpu.get_cpu_capability()
    return " ".join([torch.__version__, capability, *facts.values()])


def plain(value: Any) -> Any:
    """Return a value of a data frame as one of JSON; floats exactly."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float):
        return float(value).hex()
    return value if isinstance(value, (int, str, list, type(None))) else repr(value)


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def compared(record: dict[str, Any], found: dict[str, Any], at: str = "") -> Iterator[str]:
    """Yield a line for each difference."""
    exact = record.get("cpu") == found.get("cpu")
    for key in sorted(record.keys() | found.keys()):
        place = f"{at}{key}"
        if key not in found or key not in record:
            yield f"{place}: {'gone' if key in record else 'new'}"
        elif isinstance(record[key], dict):
            yield from compared(record[key], found[key], f"{place} ")
        elif key == "cpu" or record[key] == found[key]:
            continue
        elif exact or not close(record[key], found[key]):
            yield f"{place}: {shown(record[key])} is now {shown(found[key])}"


def close(record: Any, found: Any) -> bool:
    """Return whether numbers agree as far as another CPU lets them; digests need not."""
    if isinstance(record, str) and not record.lstrip("-").startswith("0x"):
        return True
    if isinstance(record, list):
        return len(record) == len(found) and all(map(close, record, found))
    if isinstance(record, str):
        a, b = float.fromhex(record), float.fromhex(found)
        return a == b or abs(a - b) <= TOLERANCE * max(1.0, abs(a), abs(b))
    return bool(record == found)


def shown(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(shown, value)) + "]"
    if isinstance(value, str) and value.lstrip("-").startswith("0x"):
        return f"{float.fromhex(value):.9g}"
    return str(value)


# Each data set of conf/task that needs no hub, with the rows that it has here
ROWS = {
    "taco": "taco_stdin.jsonl",
    "taco_verified": "taco_stdin.jsonl",
    "code_contests": "code_contests_train.jsonl",
    "code_contests olympiad": "code_contests_olympiad.jsonl",
    "code_contests test": "code_contests_test.jsonl",
    "apps": "apps_stdin_with_wrong.jsonl",
    "mbpp": "mbpp.jsonl",
    "taco special": "taco_special_judge.jsonl",
    "taco calls": "taco_call_based_no_tests.jsonl",
}
GENERATED = ("mini", "mini_long", "mini_feedback", "sums")
SPLITS = ("train", "tune", "choose", "test")
ALL = [f"task.{split}_problems=100000" for split in SPLITS]


def open_splits(*overrides: str) -> dict[str, list[Any]]:
    """Return the problems of each split as a run gets them."""
    from envs.tasks import open_task
    from experiments.config import parse
    from experiments.config.composition import compose

    task = open_task(parse(compose([*overrides, "model=nano"])).task)
    return {split: list(getattr(task, split)) for split in SPLITS}


def data_sets() -> dict[str, Any]:
    """Return the digest of every problem's content, split by split."""
    lines = {name: (f"task={name}",) for name in GENERATED}
    if DATA.is_dir():
        lines["starter"] = ("task=starter", f"task.path={DATA / 'mbpp.jsonl'}", *ALL)
        for name, file in ROWS.items():
            lines[name] = (f"task={name.split()[0]}", f"task.path={DATA / file}", *ALL)
    return {
        name: {
            split: [f"{problem.hash} {content(problem)}" for problem in problems]
            for split, problems in open_splits(*overrides).items()
        }
        for name, overrides in lines.items()
    }


def content(problem: Any) -> str:
    """Return the digest of what a prompt and a data set's programs are made from."""
    p = problem
    rest = (p.name, p.statement, p.samples, p.checker, p.starter_code, p.difficulty, p.tags)
    programs = (p.solutions, p.incorrect_solutions, p.source, p.rating, p.date)
    return hashlib.sha256(repr((rest, programs)).encode()).hexdigest()[:16]


def verdicts() -> dict[str, Any] | None:
    """Return the verdicts on at most two right and two wrong programs of each real row."""
    if not DATA.is_dir():
        return None
    from envs import Judge, JudgeConfig, SandboxConfig, Submission, as_response, open_sandbox

    names = ("taco", "code_contests", "code_contests olympiad", "apps", "mbpp", "taco special")
    submissions, keys = [], []
    for name in names:
        problems = open_splits(f"task={name.split()[0]}", f"task.path={DATA / ROWS[name]}", *ALL)
        for problem in [problem for split in problems.values() for problem in split][:120]:
            programs = [*problem.solutions[:2], *problem.incorrect_solutions[:2]]
            for i, program in enumerate(programs):
                submissions.append(Submission(problem, as_response(program)))
                keys.append(f"{name} {problem.name} {i}")
    sandbox = open_sandbox(SandboxConfig(kind="embedded"))
    try:
        judged = Judge(sandbox, JudgeConfig()).judge(submissions)
    finally:
        sandbox.close()
    return {key: str(one.verdict) for key, one in zip(keys, judged, strict=True)}


def reports(out: Path) -> dict[str, Any]:
    """Return a digest of each column of the CSV files that reports of packed studies write."""
    import pandas as pd

    found = {}
    for study in ("study-front", "study-feedback"):
        place = out / f"report-{study}"
        packed = f"runs=docs/results/{study}"
        execute([sys.executable, "-m", "analysis.report", packed, f"out={place}"])
        for file in sorted(place.glob("*.csv")):
            text = file.read_text()
            if not text.strip():
                continue
            frame = pd.read_csv(file, dtype=str, keep_default_na=False)
            frame = frame.drop(columns="path", errors="ignore")  # the place of this checkout
            found[f"{study} {file.name}"] = {name: digest(list(frame[name])) for name in frame}
        shutil.rmtree(place)
    return found


def programs() -> dict[str, Any]:
    """Return a digest of each attack and honest program, its input and what it must come to."""
    from tests.golden.programs import attack_programs, honest_programs

    return {
        "attack": {name: digest(parts) for name, parts in attack_programs()},
        "honest": {name: digest(parts) for name, parts in honest_programs()},
    }


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
