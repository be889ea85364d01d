"""`from=FOLDER`: a recorded configuration as the words of a command line."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from experiments.config.composition import CONF, config_of, jobs_of
from experiments.config.from_run import as_word, with_recorded_run
from experiments.config.resolve_defaults import resolve_defaults
from experiments.config.resume import recorded_values
from experiments.errors import UserError
from tests.experiments.compose import config as config_as_composed
from tests.selection import all_but_slow

TUNED = ["experiment=tuned_mini_spo", "seed=3", "steps=7", "train.sync_every=2"]
TUNED_BETA = yaml.safe_load((CONF / "experiment/tuned_mini_spo.yaml").read_text())["algo"]["beta"]
EXPERIMENTS = sorted(file.stem for file in (CONF / "experiment").glob("*.yaml"))
CASES = {
    "experiment": TUNED,
    "stand-ins": ["model.name=nano-after-sft", 'model.path="a b/c"', "logger=[wandb,tensorboard]"],
    "own-data": [
        *("task=own", "task.path=rows.jsonl", "task.fields.statement=q", "model=qwen3_0b6"),
        *("task.fields.inputs=a.b", "task.fields.outputs=c", "task.from=2024-01-01"),
        *("task.difficulty=EASY", "+model.chat_args.more=[1,x]", "engine=auto"),
    ],
    "published": ["task=paper", "algo=dapo", "runtime=ray", "runtime.judges=3"],
} | {name: [f"experiment={name}"] for name in EXPERIMENTS if name != "frozen"}
SLOW = CASES.keys() - {"experiment", "own-data", "stand-ins"}  # other files, the same branches


@pytest.fixture
def record(tmp_path):
    """A function that writes a run folder as Records does; returns its `from=` word."""

    def write(*overrides):
        config = resolve_defaults(config_as_composed(*overrides), "cpu")
        (tmp_path / "run.json").write_text("{}")
        return rewrite(f"from={tmp_path}", OmegaConf.to_yaml(asdict(config)))

    return write


def recorded(word):
    return yaml.safe_load((Path(word.removeprefix("from=")) / "config.yaml").read_text())


def rewrite(word, text):
    (Path(word.removeprefix("from=")) / "config.yaml").write_text(text)
    return word


def composed(*words):
    (job,) = jobs_of(with_recorded_run(words))
    return config_as_composed(*job)


@pytest.mark.parametrize("case", all_but_slow(list(CASES), SLOW))
def test_a_recorded_configuration_is_composed_anew(case, record):
    word = record(*CASES[case])
    again = asdict(resolve_defaults(composed(word), "cpu"))
    assert json.loads(json.dumps(again)) == json.loads(json.dumps(recorded(word)))


def test_overrides_come_on_top_and_no_key_stands_twice(record):
    words = with_recorded_run([record(*TUNED), "seed=5"])
    assert [word for word in words if word.startswith("seed")] == ["seed=5"]
    config = config_of(words)
    assert (config.seed, config.steps, config.algo.beta) == (5, 7, TUNED_BETA)


def test_with_more_samples_each_k_that_was_requested_is_measured(record):
    word = record("eval.samples=4")
    assert recorded(word)["eval"]["k"] == [1]
    info = Path(word.removeprefix("from=")) / "run.json"
    info.write_text('{"requested_k": [1, 5, 10]}')
    assert resolve_defaults(composed(word, "eval.samples=20"), "cpu").eval.k == [1, 5, 10]
    assert resolve_defaults(composed(word), "cpu").eval.k == [1]
    assert composed(word, "eval.k=[2]").eval.k == [2]


def test_another_algorithm_has_its_own_options_and_is_not_called_tuned(record):
    config = composed(record(*TUNED), "algo=ppo")
    assert asdict(config.algo) == asdict(config_as_composed("algo=ppo").algo)
    assert (config.steps, config.train.sync_every, config.tuned) == (7, 2, None)


def test_an_experiment_decides_on_what_its_file_states_even_where_that_is_the_default(record):
    word = record("algo=grpo", "train.schedule=linear", "train.prompts=3", "algo.kl_coef=0.5")
    config = composed(word, "experiment=tuned_mini_spo")
    assert (config.algo.name, config.algo.beta) == ("spo", TUNED_BETA)
    assert (config.train.schedule, config.train.prompts) == ("constant", 3)
    assert config.tuned and config.name == "tuned_mini"


def test_another_task_brings_its_model_and_sizes_and_leaves_the_rest(record):
    word = record("seed=4", "task.reward.low=-1.0", "task.train_problems=4")
    config = composed(word, "task=mbpp")
    assert (config.model.name, config.name) == ("qwen25_coder_0b5", "mbpp")
    assert config.task.train_problems == 30_000
    assert (config.seed, config.task.reward.low) == (4, -1.0)
    back = record("task=mbpp", "seed=4")
    config = composed(back, "task=mini")
    assert (config.model.name, config.train.micro_batch, config.seed) == ("nano", 64, 4)
    assert config.task == config_as_composed().task


def test_the_model_of_a_run_stays_with_another_task(record):
    word = record("task=mbpp", "model=smollm2_135m", "train.micro_batch=3")
    config = composed(word, "task=apps")
    assert (config.model.name, config.train.micro_batch) == ("smollm2_135m", 3)


def test_a_sweep_from_a_run(record):
    word = record(*TUNED)
    jobs = jobs_of(with_recorded_run(["-m", word, "algo=grpo,ppo", "seed=0,1"]))
    assert len(jobs) == 4
    config = config_of(jobs[-1])
    assert (config.algo.name, config.seed, config.train.sync_every) == ("ppo", 1, 2)
    with pytest.raises(UserError, match="each keep other keys"):
        with_recorded_run(["-m", record("steps=5"), "experiment=quick,tuned_mini_ppo"])


def test_keys_that_no_longer_exist_are_named_once_with_what_to_do(record):
    word = record()
    values = recorded(word)
    values["train"]["behaviour"] = "told"
    values["frobnicate"] = {"deep": 1}
    rewrite(word, yaml.safe_dump(values, sort_keys=False))
    with pytest.raises(UserError) as error:
        with_recorded_run([word])
    assert str(error.value) == (
        f"{word}: keys of that run that no longer exist: train.behaviour (now "
        "train.missing_logprobs), frobnicate.deep; leave them out with '~train.behaviour' "
        "'~frobnicate.deep', and give what replaces them"
    )
    left_out = ["~train.behaviour", "~frobnicate.deep", "seed=9"]
    assert composed(word, *left_out).seed == 9


def test_on_a_command_line(record, call_here):
    word = record("seed=3", "algo=ppo")
    done = call_here(word, "-m", "algo=grpo,spo", "--cfg", "job")  # Hydra takes -m in front only
    jobs = list(yaml.safe_load_all(done.stdout))
    assert [(job["algo"]["name"], job["seed"]) for job in jobs] == [("grpo", 3), ("spo", 3)]
    for mistake in (["from=absent"], [word, "sede=1"]):
        done = call_here(*mistake)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["from=absent"], "from=absent: not a run folder; run folders are in `outputs/NAME/`"),
        (["from=absent", "resume=absent"], "from= begins a new run"),
        (["from="], "from= is empty; give a run folder, such as from=outputs/mini/RUN"),
    ],
)
def test_mistakes_are_one_line(words, message):
    with pytest.raises(UserError) as error:
        with_recorded_run(words)
    assert str(error.value).startswith(message)


def test_a_configuration_that_is_none(record):
    word = record()
    texts = {"- 1": "no keys in it", "a: [": "cannot be read", "a: 1": "no algo.name"}
    for text, reason in texts.items():
        rewrite(word, text)
        with pytest.raises(UserError, match=reason) as error:
            with_recorded_run([word])
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_a_record_that_is_none(record, text):
    word = record()
    (Path(word.removeprefix("from=")) / "run.json").write_text(text)
    with pytest.raises(UserError, match=r"its run\.json cannot be read") as error:
        with_recorded_run([word])
    assert "\n" not in str(error.value)


def test_an_algorithm_that_is_gone_needs_another(record):
    word = record()
    values = recorded(word)
    values["algo"]["name"] = "gone"
    rewrite(word, yaml.safe_dump(values, sort_keys=False))
    with pytest.raises(UserError, match="algo=gone: no such choice now; give algo=NAME"):
        with_recorded_run([word])
    assert composed(word, "algo=grpo").algo.name == "grpo"


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 3, 1e-05, "tune", "null", "1", "a, b", ""),
        *('say "x"', "back\\slash\\", 'b\\"', [1, "a b", [None]]),
    ],
)
def test_values_survive_the_grammar_of_the_command_line(value):
    (override,) = OverridesParser.create().parse_overrides([f"key={as_word(value)}"])
    assert not override.is_sweep_override()
    assert override.value() == value or str(override.value()) == value


def test_the_folder_of_an_experiment_names_one_of_its_runs(tmp_path):
    for name in ("spo-s0", "spo-s1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").touch()
    with pytest.raises(UserError, match=r"not a run folder; 2 are in it, such as spo-s1$"):
        recorded_values(tmp_path, f"resume={tmp_path}")
