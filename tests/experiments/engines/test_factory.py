"""Choosing an engine: what is wrong is said in one line, and vLLM is imported only where chosen."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.config import dependencies
from experiments.errors import UserError
from tests.experiments.compose import config as parsed


@pytest.mark.parametrize("found", [None, "0.33.0"])
def test_a_missing_or_wrong_vllm_says_what_to_install(found, monkeypatch):
    monkeypatch.setattr(dependencies, "vllm_version", lambda: found)
    with pytest.raises(UserError) as raised:
        parsed("engine=vllm")
    text = str(raised.value)
    assert "\n" not in text
    assert f"vLLM {found} is installed" in text if found else "vLLM is not installed" in text
    assert f"pip install vllm=={dependencies.VLLM_RELEASE}" in text
    assert parsed("engine=hf").engine.name == "hf"


MISTAKES = {
    "device": (["engine.device=gpu"], ["engine.device='gpu'", "auto|cuda"]),
    "two GPUs": (["engine.device=cuda:1"], ["engine.colocate=true", "engine.device=auto"]),
    "share": (["engine.memory_share=1.5"], ["engine.memory_share=1.5", "below 1"]),
    "bound": (["engine.logprob_check_bound=0"], ["engine.logprob_check_bound=0", "above 0"]),
    "samples": (["engine.logprob_check_samples=0"], ["logprob_check_samples=0", "at least 1"]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_names_the_key_and_what_would_be_right(mistake, monkeypatch):
    monkeypatch.setattr(dependencies, "vllm_version", lambda: dependencies.VLLM_RELEASE)
    overrides, words = MISTAKES[mistake]
    with pytest.raises(UserError) as raised:
        parsed("engine=vllm", *overrides)
    assert all(word in str(raised.value) for word in words), raised.value


def test_what_is_right_passes(monkeypatch):
    monkeypatch.setattr(dependencies, "vllm_version", lambda: dependencies.VLLM_RELEASE)
    parsed("engine=vllm")
    parsed("engine=vllm", "engine.colocate=false", "engine.device=cuda:1")


ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("package", ["algorithms", "analysis", "envs", "experiments"])
def test_no_module_imports_vllm_at_its_top(package):
    for file in sorted((ROOT / package).rglob("*.py")):
        modules = set()
        for node in at_import(ast.parse(file.read_text()).body):
            if isinstance(node, ast.Import):
                modules |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                modules.add(node.module.partition(".")[0])
        assert "vllm" not in modules, file


def at_import(body):
    """The statements that run when a module is imported: not those of functions."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            yield from at_import(node.orelse)
            continue
        yield node
        for field in ("body", "orelse", "finalbody"):
            yield from at_import(getattr(node, field, []))
        for handler in getattr(node, "handlers", []):
            yield from at_import(handler.body)


@pytest.mark.slow  # a Python that imports torch; what it would find here is found above
def test_nothing_imports_vllm_before_it_is_chosen():
    program = """
import sys
import experiments.trainer, experiments.engines.vllm, experiments.engines.hf
assert "vllm" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=600)
