"""Each key stands once in conf/, with a meaning; a command line composes it."""

from dataclasses import asdict, replace

import pytest
from omegaconf import OmegaConf

import algorithms
from envs.command_line import CONF, choices_of, leaves, yaml_lines
from envs.judge.judge import JudgeConfig
from envs.sandbox import SandboxConfig
from envs.tasks.task import TaskConfig
from experiments.config import parse, preflight
from experiments.config.composition import compose, config_of, jobs_of, shown_text
from experiments.config.schema import plain_values
from experiments.errors import UserError

GROUPS = ("task", "model", "engine", "sandbox", "runtime", "logger")


def test_every_key_of_the_help_has_a_meaning():
    choices = ["task=own", "runtime=ray", "algo=ppo"]
    listed = {}
    for line in str(shown_text([*choices, "--help"])).partition("== algo=NAME")[2].splitlines():
        if line.startswith("  "):
            head, _, meaning = line.strip().partition("  ")
            listed[head.partition("=")[0]] = meaning.strip()
    keys = {key for key, _ in leaves(plain_values(compose(choices)))}
    assert keys <= set(listed)
    assert {key for key in keys if not listed[key]} <= {"task.rows"}


@pytest.mark.parametrize("algo", choices_of("algo"))
def test_every_option_of_an_algorithm_has_a_meaning(algo):
    for line in yaml_lines(CONF / "algo" / f"{algo}.yaml", algorithms.defaults(algo)):
        assert len(line.split(maxsplit=1)) == 2, line


def test_every_choice_composes():
    longest = max(len(choices_of(group)) for group in GROUPS)
    for number in range(longest):
        chosen = {group: choices_of(group) for group in GROUPS}
        words = [f"{group}={some[number % len(some)]}" for group, some in chosen.items()]
        config_of([*words, "steps=0", "eval.split=test", "model.path=x"])


def test_defaults_in_conf_are_those_of_the_library():
    values = plain_values(compose(["task=own"]))
    for section, library in (("judge", JudgeConfig()), ("sandbox", SandboxConfig())):
        assert values[section] == asdict(library)
    task, own = asdict(TaskConfig()), values["task"]
    contest = plain_values(OmegaConf.load(CONF / "task/_shared/contest.yaml"))["task"]
    stated = {*contest, "name", "rows", "from", "to"}
    assert {k: v for k, v in own.items() if k not in stated} == {
        key: task[key] for key in own if key not in stated
    }


@pytest.mark.parametrize(
    ("given", "rate"),
    [
        ("task=own model=nano", 3e-4),
        ("task=starter model=nano_5m", 3e-4),
        ("task=own", 1e-6),
        ("task=own model=local model.path=x", 1e-6),
        ("task=mini model=smollm2_135m", 1e-6),
        ("experiment=paper_ppo model=nano", 2e-7),
    ],
)
def test_the_learning_rate_is_the_models(given, rate):
    assert config_of(given.split()).algo.learning_rate == rate


SURPRISES = {
    "train.prompts=600": "task.train_problems=512",
    "eval.samples=8": "[10]",
    "task=own model=nano": "task=own",
    "model=nano_5m": "task=mini:",
    "task=mini_long model=nano": "task=mini_long:",
    "task=mini_long": "",
    "task=sums train.prompts=60": "",
}


@pytest.mark.parametrize("given", SURPRISES)
def test_a_setting_that_may_surprise_is_noted_in_a_line(given, capsys):
    shown_text(["--cfg", "job", *given.split()])
    noted = capsys.readouterr().err
    assert SURPRISES[given] in noted and noted.count("NOTE: ") == bool(SURPRISES[given])


@pytest.mark.parametrize("word", ["algo=glob(s*)", "model="])
def test_what_names_no_choice_is_refused(word):
    with pytest.raises(UserError, match=word.partition("(")[0]):
        jobs_of(["-m", word])


def test_words_of_jobs(tmp_path):
    assert jobs_of(["algo=ppo", "seed=3"]) == [["algo=ppo", "seed=3"]]
    assert jobs_of(["algo=ppo", "-m", "seed=1,2"]) == [["algo=ppo", f"seed={s}"] for s in (1, 2)]
    (tmp_path / "config.yaml").write_text(OmegaConf.to_yaml(asdict(config_of(["algo=ppo"]))))
    for words in (["--config-path", str(tmp_path)], [f"--config-path={tmp_path}"]):
        config = config_of(jobs_of([*words, "steps=3"])[0])
        assert (config.algo.name, config.steps) == ("ppo", 3)
    assert config_of(["steps=1e3"]).steps == 1000
    (tmp_path / "algo").mkdir()
    (tmp_path / "algo" / "mine.yaml").write_text(
        "defaults: [_grpo, _self_]\nname: mine\ncore: algorithms.grpo.GRPO\nclip_high: 0.5\n"
    )
    config = config_of(jobs_of([f"--config-dir={tmp_path}", "algo=mine"])[0])
    assert (config.algo.name, config.algo.clip_high) == ("mine", 0.5)


def test_a_folder_is_a_choice_of_model(tmp_path):
    (tmp_path / "my-model").mkdir()
    model = config_of(["model=nano_5m", f"model={tmp_path}/my-model", "model.dtype=float32"]).model
    assert (model.name, model.path) == ("my-model", f"{tmp_path}/my-model")


def test_open_values_are_resolved_by_device(monkeypatch):
    given = config_of(["task=taco", "eval.samples=3"])
    for device, limits, dtype in (("cuda:1", (2048, 1024), "bfloat16"), ("cpu", (1024, 256), None)):
        found = preflight.resolve_defaults(given, device)
        assert (found.task.max_prompt_tokens, found.task.max_response_tokens) == limits
        assert found.eval.k == [1] and found.engine.name == "hf"
        assert dtype in (None, found.model.dtype)
    monkeypatch.setattr(preflight, "vllm_version", lambda: preflight.VLLM_RELEASE)
    assert preflight.resolve_defaults(given, "cuda").engine.name == "vllm"


MISSING = {
    "output_dir=/proc/none": "output_dir",
    "engine=vllm": "vllm==",
    "task.prompt=/nowhere": "task.prompt",
    "model=local model.path=/nowhere": "model.path=/nowhere",
    "model=local model.path=tests": "config.json",
}


@pytest.mark.parametrize("given", MISSING)
def test_what_is_missing_is_said_before_anything_loads(given, tmp_path, monkeypatch):
    monkeypatch.setattr(preflight, "vllm_version", lambda: None)
    config = config_of(given.split())
    if "output_dir" not in given:
        config = replace(config, output_dir=str(tmp_path))
    with pytest.raises(UserError, match=MISSING[given]):
        preflight.check_before_start([config])


def test_another_choice_beside_a_recorded_configuration_is_one_line():
    recorded = OmegaConf.create(plain_values(compose([])) | {"algo": "ppo"})
    with pytest.raises(UserError, match=r"^algo=ppo: no choice of a recorded configuration"):
        parse(recorded)
