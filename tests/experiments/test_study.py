"""A study's file, and the runs that follow from it."""

import json

import pytest
from omegaconf import OmegaConf

from experiments import study as studies
from experiments.errors import UserError
from experiments.runner import End, Runner
from experiments.study import STUDIES, choose, read, run_study, split_arguments, study_jobs
from tests.command_line import ROOT

FILE = {
    "question": "Which?",
    "seeds": [0, 1],
    "overrides": ["steps=3", "eval.split=test"],
    "final": True,
    "arms": {
        "grpo": {"overrides": ["algo=grpo", "train.keep_samples=true"]},
        "spo": {"overrides": ["algo=spo"], "weights_of": "grpo"},
        "ppo": {"overrides": ["algo=ppo"], "rollouts_of": "grpo"},
        "mix": {"overrides": ["algo=spo", "train.replay_share=0.5"], "replay_of": "grpo"},
    },
    "claims": [{"says": "so", "a": "spo", "b": "grpo", "metric": "pass@1", "margin": 0.1}],
    "gains": [["spo", "grpo"]],
    "control": "grpo",
}


@pytest.fixture
def write(tmp_path):
    """Write FILE with changes (dotted keys); returns its path."""

    def written(**changes):
        values = OmegaConf.create(FILE)
        for key, value in changes.items():
            OmegaConf.update(values, key.replace("__", "."), value)
        (file := tmp_path / "s.yaml").write_text(OmegaConf.to_yaml(values))
        return str(file)

    return written


def test_runs_come_seed_by_seed_after_their_parents_and_know_their_place(write):
    study = read(write())
    jobs = study_jobs(study, study.seeds, ["spo", "mix"], ["steps=5"])
    labels = ["grpo-s0", "spo-s0", "mix-s0", "grpo-s1", "spo-s1", "mix-s1"]
    assert [job.label for job in jobs] == labels
    assert [job.config.seed for job in jobs] == [0, 0, 0, 1, 1, 1]
    assert {job.config.name for job in jobs} == {"study-s"} and jobs[0].config.steps == 5
    spo = jobs[1]
    assert spo.parents == {"weights_of": jobs[0]} and spo.config.model.name == "nano-after-grpo"
    assert all(job.config.eval.final for job in jobs)  # the study's YAML says final
    gain, claim = ("spo", "grpo", None, None), ("spo", "grpo", "pass@1", 0.1)
    over = ("(spo - grpo)", "(ppo - mix)", "pass@1", None)
    for known, named in ((study, claim), (read(write(claims=[OVER])), over)):
        assert [tuple(each.values()) for each in known.contrasts] == [gain, named]
    assert [*study.contrasts[0]] == ["a", "b", "metric", "margin"]


OVER = {"says": "so", "a": "spo", "b": "grpo", "over": ["ppo", "mix"], "metric": "pass@1"}
TUNING = {"overrides": [], "seed": 7, "rescore_seeds": [8, 9]}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"qestion": "?"}, ["qestion", "did you mean 'question'"]),
        ({"arms__spo__overides": []}, ["arms.spo.overides", "overrides"]),
        ({"seeds": []}, ["seeds"]),
        ({"control": "grop"}, ["control", "did you mean 'grpo'"]),
        ({"gains": [["spo", "nobody"]]}, ["gains", "nobody"]),
        ({"claims": [{**FILE["claims"][0], "a": "sop"}]}, ["claims", "sop"]),
        ({"claims": [{**FILE["claims"][0], "metric": "pass1"}]}, ["claims", "pass1"]),
        ({"claims": [{**OVER, "margin": 0.1}]}, ["claims", "over", "leave out margin"]),
        ({"claims": [{**OVER, "at_equal": "pass@1"}]}, ["claims", "over", "leave out", "at_equal"]),
        ({"claims": [{**OVER, "metric": "time"}]}, ["claims", "over", "(time, memory)"]),
        ({"claims": [{**OVER, "over": ["ppo", "mx"]}]}, ["claims", "did you mean 'mix'"]),
        ({"claims": [{**OVER, "over": ["ppo"]}]}, ["claims", "over"]),
        ({"arms__spo__weights_of": "ppo"}, ["arms.spo.weights_of=ppo"]),
        ({"arms__grpo__overrides": ["algo=grpo"]}, ["train.keep_samples=true"]),
        ({"tuning": {**TUNING, "seed": 1}}, ["tuning", "seed 1"]),
        ({"tuning": {**TUNING, "rescore_seeds": [7, 9]}}, ["tuning", "seed 7"]),
        ({"tuning": {**TUNING, "rescore_seeds": [8]}}, ["rescore_seeds"]),
        ({"arms__spo__overrides": ["algo=spo", "algo.nothing=1"]}, ["arm spo: ", "algo.nothing"]),
        ({"arms__twin": FILE["arms"]["grpo"]}, ["grpo and twin have the same configuration"]),
        ({"claims": [{**FILE["claims"][0], "metric": "pass@99"}]}, ["add 99 to eval.k"]),
    ],
)
def test_a_mistake_in_a_study_is_one_line(write, changes, words):
    with pytest.raises(UserError) as caught:
        study_jobs(study := read(write(**changes)), [0], list(study.arms))
    assert all(word in str(caught.value) for word in words) and "\n" not in str(caught.value)


def test_a_key_that_stands_twice_and_no_study_are_refused(tmp_path):
    file = tmp_path / "s.yaml"
    file.write_text("question: Which\nseeds: [0]\narms:\n  a: {}\n  a: {}\n")
    with pytest.raises(UserError, match="a stands twice"):
        read(str(file))
    with pytest.raises(UserError, match="did you mean 'front'"):
        read("fronnt")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [(["algoo=spo"], "algoo"), (["seed=1"], "seed"), (["jobs=0"], "jobs"), (["again=no"], "again")],
)
def test_words_of_a_study_are_its_own_or_overrides(arguments, word):
    options, overrides = split_arguments(studies.Options, ["study=front", "jobs=auto", "steps=3"])
    assert options.jobs >= 1 and overrides == ["steps=3"]
    with pytest.raises(UserError, match=word):
        split_arguments(studies.Options, arguments)
    assert choose("seeds", "2,0", [0, 1, 2]) == [0, 2]
    with pytest.raises(UserError, match="seeds=3: choose from 0, 1"):
        choose("seeds", "3", [0, 1])


def test_the_command_writes_which_run_belongs_to_which_arm(write, tmp_path, monkeypatch):
    reported = []
    monkeypatch.setattr("analysis.report.main", lambda words: reported.append(words) or 0)

    def run(self):
        for job in self.jobs:
            failed = job.label == "ppo-s1"
            job.end = End("failed", None, "why") if failed else End("finished", tmp_path / "run")

    monkeypatch.setattr(Runner, "run", run)
    given = [f"study={write()}", f"output_dir={tmp_path}", "sandbox=embedded"]
    assert run_study(given) == 1
    folder = tmp_path / "study-s"
    arms = json.loads((folder / "arms.json").read_text())
    assert len(arms) == 8 and (arms[0]["arm"], arms[0]["seed"]) == ("grpo", 0)
    assert {arm["status"] for arm in arms if arm["arm"] == "ppo"} == {"finished", "failed"}
    assert len(json.loads((folder / "contrasts.json").read_text())) == 2
    assert reported == [[f"runs={folder}", f"out={folder / 'report'}", "control=grpo"]]


@pytest.mark.parametrize("name", [file.stem for file in STUDIES.glob("*.yaml")])
def test_every_study_here_can_be_read_and_its_first_arm_composes(name):
    study = read(name)
    arm = next(iter(study.arms))
    assert study_jobs(study, study.seeds[:1], [arm])[0].config.name == study.name
    first = (STUDIES / f"{name}.yaml").read_text().partition("\n")[0]
    assert f"STUDY={name}" in first or first in ("# make study", "# make run-real")


@pytest.mark.slow
@pytest.mark.parametrize("name", [file.stem for file in STUDIES.glob("*.yaml")])
def test_every_arm_of_every_study_here_composes(name):
    study, tuned = read(name), f"experiment=tuned_{name}_"
    files = {file.stem for file in (STUDIES.parent / "experiment").glob("*.yaml")}

    def is_tuned(word):  # or needs no tuning of its own
        return not word.startswith(tuned) or word.partition("=")[2] in files

    arms = [arm for arm, each in study.arms.items() if all(map(is_tuned, each.overrides))]
    assert study_jobs(study, study.seeds, arms)


def test_the_guides_study_can_be_run(tmp_path):
    guide = (ROOT / "docs" / "guide" / "comparing.md").read_text()
    file = tmp_path / "guide.yaml"
    file.write_text(guide.partition("```yaml\n")[2].partition("```")[0])
    study = read(str(file))
    assert study_jobs(study, study.seeds, list(study.arms))
