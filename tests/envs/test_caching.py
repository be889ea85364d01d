"""Functions by their dotted names: what is said of a wrong one, and which code counts as theirs."""

import importlib
import itertools
import subprocess
import sys

import pytest

from envs.caching import code_digest
from envs.command_line import load_function

FRESH = itertools.count()


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Writes modules under a package name that no other test has used; gives that name."""
    name = f"somebodys{next(FRESH)}"
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(**modules):
        for module, text in {"__init__": "", **modules}.items():
            file = tmp_path / name / f"{module}.py"
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
        importlib.invalidate_caches()
        return name

    return write


def test_a_function_is_found(package):
    name = package(rows="def problem(row, name):\n    return row\n")
    assert load_function(f"{name}.rows.problem", "task.rows")(3, "") == 3


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("problem", "write package.module.function"),
        ("{0}.rows.proble", "did you mean 'problem'? {0}.rows has no function proble"),
        ("{0}.rows.LIMIT", "has no function LIMIT"),
        ("{0}.row.problem", "{0}.row cannot be imported: ModuleNotFoundError"),
        ("nowhere_at_all.rows.problem", "nowhere_at_all.rows cannot be imported: "),
        ("{0}.needy.f", "ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("{0}.broken.f", "{0}.broken cannot be imported: SyntaxError"),
        ("{0}.failing.f", "{0}.failing cannot be imported: ZeroDivisionError: division by zero"),
    ],
)
def test_mistakes_are_one_line_with_key_and_value(package, asked, said):
    name = package(
        rows="from pathlib import Path\nLIMIT = 3\ndef problem(row, name):\n    return row\n",
        needy="import nowhere_at_all\n",
        broken="def f(:\n",
        failing="1 / 0\n",
    )
    with pytest.raises(ValueError) as error:
        load_function(asked.format(name), "task.rows")
    assert str(error.value).startswith(f"task.rows={asked.format(name)}: ")
    assert said.format(name) in str(error.value) and "\n" not in str(error.value)


USED = {
    "rows": "from .parts import half\nimport json\ndef problem(row, name):\n"
    "    from {0} import late\n    return half(row)\n",
    "parts": "from {0}.deep import x\ndef half(n):\n    return n / 2\n",
    "deep": "x = 1\n",
    "late": "y = 1\n",
}


@pytest.mark.parametrize("changed", ["rows", "parts", "deep", "late"])
def test_a_change_of_whatever_is_imported_is_another_digest(package, changed):
    name = package()
    package(**{module: text.format(name) for module, text in USED.items()}, unused="z = 1\n")
    before = code_digest(f"{name}.rows")
    package(unused="z = 2\n")
    assert code_digest(f"{name}.rows") == before
    package(**{changed: USED[changed].format(name) + "# other\n"})
    assert code_digest(f"{name}.rows") != before


def test_what_is_imported_for_types_only_is_not_followed(package):
    name = package()
    guarded = f"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from {name} import kinds\n"
    package(rows=guarded, kinds="a = 1\n")
    before = code_digest(f"{name}.rows")
    package(kinds="a = 2\n")
    assert code_digest(f"{name}.rows") == before


def test_a_module_beside_it_is_followed_and_an_installed_one_is_not(tmp_path, monkeypatch):
    """Neither is imported to be looked at: pyarrow takes most of a second."""
    (tmp_path / "my_rows.py").write_text("import my_helpers\nimport pyarrow.parquet\n")
    script = (
        "import sys; from envs.caching import code_digest; print(code_digest('my_rows')); "
        "assert 'pyarrow' not in sys.modules"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = []
    versions = ("py", "a = 1\n"), ("py", "a = 1\n"), ("py", "a = 2\n"), ("yaml", "b: 1\n")
    for ending, text in versions:
        (tmp_path / f"my_helpers.{ending}").write_text(text)
        found.append(subprocess.check_output([sys.executable, "-c", script], text=True))
    assert found[0] == found[1] and len(set(found)) == 3
