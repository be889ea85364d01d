"""The example of docs/guide/algorithms.md: it is RLOO, and the free tests find mistakes in it."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from omegaconf import OmegaConf

import algorithms
from experiments.config.composition import config_of
from experiments.errors import UserError
from tests.algorithms import test_gradients, test_invariance, test_reference
from tests.algorithms.batches import gradient, raw

PAGE = Path(algorithms.CONF).parents[1] / "docs" / "guide" / "algorithms.md"


def block(language):
    return re.search(rf"```{language}\n(.*?)```", PAGE.read_text(), re.S).group(1)


@pytest.fixture
def written(monkeypatch):
    """A function that makes the example a module, with pieces of its text replaced."""

    def write(replacements=()):
        module = ModuleType("algorithms.leave_one_out")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        text = block("python")
        for old, new in replacements:
            assert old in text
            text = text.replace(old, new)
        exec(text, vars(module))
        return module

    return write


def made(module):
    options = OmegaConf.create(block("yaml"))
    name, core = options.pop("name"), options.core.rpartition(".")
    assert (name, core[0]) == ("leave_one_out", module.__name__)
    example = getattr(module, core[2])
    return example(example.Config(name=name, **options), 1.0)


def test_an_option_that_it_lacks_is_not_recommended(written):
    module = written()
    overrides = [f"algo.core={module.__name__}.LeaveOneOut", "train.lag=1"]
    with pytest.raises(UserError, match=r"the lag is up to 1; lower it$"):
        config_of(["algo=sft", *overrides])
    with pytest.raises(UserError, match=r"lower it, or allow more with algo.max_lag=1$"):
        config_of(["algo=rloo", "train.lag=1"])


def test_the_example_is_rloo(written):
    ours = made(written())
    keep = torch.arange(12) % 5 != 3
    case = {"keep": keep, "cut": 3, "layout": (1, 2, "left")}
    expected = gradient(algorithms.make("rloo"), *raw(50), **case)
    for one, other in zip(gradient(ours, *raw(50), **case), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)
    assert ours.needs.max_lag == algorithms.make("rloo").needs.max_lag


ROOT = PAGE.parents[2]


def copy_with_the_example(folder):
    """Copy of all that tests and linters of an objective read, with the example's two files."""
    names = ("algorithms", "analysis", "conf", "envs", "experiments", "tests")
    hidden = shutil.ignore_patterns("__pycache__")
    for name in (*names, "docs/guide"):
        shutil.copytree(ROOT / name, folder / name, ignore=hidden)
    for file in ("pyproject.toml", "run.py"):
        shutil.copy(ROOT / file, folder)
    (folder / "assets").symlink_to(ROOT / "assets")
    (folder / "conf/algo/leave_one_out.yaml").write_text(block("yaml"))
    (folder / "algorithms/leave_one_out.py").write_text(block("python"))


# Slow: processes of their own, and mypy reads all that the room imports.
@pytest.mark.slow
def test_with_the_examples_files_the_guides_commands_pass(tmp_path):
    copy_with_the_example(tmp_path)
    tests, longer = (
        shlex.split(arguments)
        for arguments in re.findall(r'^make test(?:-slow)? ARGS="(.+?)"', PAGE.read_text(), re.M)
    )
    plain = ("pytest", "-q", "-n", "0", "-p", "no:cacheprovider")
    for command in (
        (*plain, "-m", "not slow", *tests),
        (*plain, "-m", "slow", *longer),
        ("ruff", "check", "--no-cache", "."),
        ("ruff", "format", "--no-cache", "--check", "."),
        ("mypy", "--cache-dir", "cache", "-p", "algorithms"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        if command[0] == "pytest":
            assert re.match(r"\d+ passed", done.stdout.splitlines()[-1])


MEAN = "group_mean(rewards, batch.keep, size)"
# The same objective with k3 in its loss instead of k1 in its reward.
K3 = (
    ("import group_count,", "import kl, group_count,"),
    ("batch.rewards - self.config.kl_coef * k1", "batch.rewards"),
    (
        "        return -gain.mean()",
        "        logp, ref_logp = (\n"
        "            x.masked_fill(~batch.mask, 0.0) for x in (policy.logp, batch.ref_logp)\n"
        "        )\n"
        "        penalty = masked_sum(kl(logp, ref_logp, 'k3'), batch.mask)\n"
        "        gain = gain - self.config.kl_coef * penalty\n"
        "        return -gain.mean()",
    ),
)
# The KL's part of the advantage in `loss`, from the present log-probs.
WITHOUT_K1 = ("batch.rewards - self.config.kl_coef * k1", "batch.rewards")
GAIN = "gain = batch.targets * masked_sum(policy.logp, batch.mask)"
IN_LOSS = (
    WITHOUT_K1,
    (
        GAIN,
        "logp = masked_sum(policy.logp, batch.mask)\n"
        "        d = logp - masked_sum(batch.ref_logp, batch.mask)\n"
        "        gain = (batch.targets - self.config.kl_coef * d) * logp",
    ),
)
DETACHED = (*IN_LOSS, ("kl_coef * d)", "kl_coef * d.detach())"))
COUNTED, CLOSER = test_invariance.DIVISORS, test_reference.CLOSER
MISTAKES = {
    "dropped rows are counted": ([("count(batch.keep", "count(batch.keep | True")], COUNTED),
    "the baseline is divided by the group size": (
        [(MEAN, "(rewards * batch.keep).view(-1, size).mean(-1)")],
        COUNTED,
    ),
    "the sign of k1": ([("batch.rewards - ", "batch.rewards + ")], CLOSER),
    "the sign of k3": ([*K3, ("gain - ", "gain + ")], CLOSER),
    "k3 of swapped arguments": (
        [*K3, ("kl(logp, ref_logp", "kl(ref_logp, logp")],
        test_reference.DIRECTION,
    ),
    "a mask that only skips NaN": (
        [(GAIN, "gain = batch.targets * policy.logp.nansum(-1)")],
        test_invariance.PADDING,
    ),
    "an advantage that is not detached": (IN_LOSS, test_reference.NOWHERE),
    "the policy of a loss detached": (
        [("policy.logp,", "policy.logp.detach() + 0 * policy.logp,")],
        test_gradients.SLOPE,
    ),
}


def run_free_tests(algorithm, is_detached=False):
    test_invariance.test_further_dropped_rows_in_a_group_change_nothing(algorithm)
    test_invariance.check_finite_padding(algorithm)
    if not is_detached:
        test_gradients.check_slope(algorithm)
    test_reference.check(algorithm)
    test_reference.check_nowhere(algorithm)


def test_a_detach_that_is_meant_is_told_of_the_list(written):
    algorithm = made(written(DETACHED))
    run_free_tests(algorithm, is_detached=True)
    with pytest.raises(AssertionError, match=re.escape(test_gradients.SLOPE)):
        test_gradients.check_slope(algorithm)


def test_a_field_that_needs_does_not_name_is_named(written):
    with pytest.raises(AttributeError) as error:
        run_free_tests(made(written([("reference=True, ", "")])))
    assert "Needs does not name them: ['ref_logp', " in error.value.__notes__[0]


@pytest.mark.parametrize("replacements", [(), K3], ids=["k1", "k3"])
def test_the_example_passes_the_free_tests(replacements, written):
    run_free_tests(made(written(replacements)))


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_free_tests_find(mistake, written):
    replacements, message = MISTAKES[mistake]
    with pytest.raises(AssertionError, match=re.escape(message)):
        run_free_tests(made(written(replacements)))
