"""The version of the rules changes with the code that decides verdicts, and with nothing else."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import envs
from envs.judge.verdict_cache import _DECIDING, rules_version

PACKAGE = Path(envs.__file__).parent
DECIDING = (
    *("problem.py", "judge/checkers.py", "judge/returned_values.py", "judge/testlib_files.cpp"),
    *("judge/extract.py", "judge/grading.py", "judge/judge.py"),
    *("sandbox/worker.py", "sandbox/protocol.py", "sandbox/seccomp.py", "sandbox/embedded.py"),
    *("sandbox/inside/values.py", "sandbox/inside/run_test.py", "sandbox/inside/interpreter.py"),
)


@pytest.fixture
def copy(tmp_path):
    return shutil.copytree(PACKAGE, tmp_path / "elsewhere" / "envs")


def test_a_copy_has_the_same_version_whatever_its_line_endings(copy):
    assert rules_version(copy) == rules_version()
    for file in copy.rglob("*.py"):
        file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    rules_version.cache_clear()
    assert rules_version(copy) == rules_version()


@pytest.mark.parametrize("name", DECIDING)
def test_one_changed_byte_of_a_deciding_module_is_another_version(copy, name):
    source = (copy / name).read_bytes()
    (copy / name).write_bytes(source[:-1] + b" ")
    assert rules_version(copy) != rules_version()


def test_a_new_module_of_the_judge_is_another_version(copy):
    (copy / "judge" / "new.py").write_text("")
    assert rules_version(copy) != rules_version()


def test_what_decides_no_verdict_does_not_count(copy):
    for name in ("reward.py", "show.py", "tasks/config.py", "sandbox/doctor.py"):
        (copy / name).write_text("changed = True\n")
    shutil.rmtree(copy / "tasks")
    assert rules_version(copy) == rules_version()


# They hold what is counted, said and shown, and where the cache lies; none decides a verdict.
IMPORTED_BESIDES = {
    "envs.environment",
    "envs.readable",
    "envs.cache_folder",
    "envs.command_line",
}


def test_no_deciding_module_imports_another_that_does_not_count():
    files = {file for pattern in _DECIDING for file in PACKAGE.glob(pattern)}
    files = {file for file in files if file.suffix == ".py"}
    packages = ("envs", "envs.judge", "envs.sandbox")
    imports = {
        f"{node.module}.{name.name}" if node.module in packages else node.module
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module
        for name in node.names
    }
    own = {name for name in imports if name.partition(".")[0] in ("envs", "experiments")}
    paths = [file.relative_to(PACKAGE.parent).with_suffix("") for file in files]
    counted = {".".join(path.parts).removesuffix(".__init__") for path in paths}
    assert own - counted <= IMPORTED_BESIDES, own - counted - IMPORTED_BESIDES


def test_it_is_read_once_and_not_on_import():
    code = (
        "import builtins, pathlib, sys\n"
        "reads = []\nread = pathlib.Path.read_bytes\n"
        "pathlib.Path.read_bytes = lambda self: reads.append(self) or read(self)\n"
        "import envs.judge.judge\nfrom envs.judge.verdict_cache import rules_version\n"
        "assert not reads, reads\nfirst = rules_version()\nonce = len(reads)\n"
        "assert once and rules_version() == first and len(reads) == once"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
