"""Studies are read whole or refused in a line."""

import re

import pytest

from experiments.errors import UserError
from experiments.studies.jobs import config_with_seed, jobs_of
from experiments.studies.run import report_keys
from experiments.studies.study import HERE, read

GUIDE = HERE.parents[1] / "docs" / "guide" / "comparing.md"
SOUND = "question: q\nseeds: [0]\narms:\n  a: {overrides: [algo=sft]}\n"

MISTAKES = {
    "no arms": ("question: q\nseeds: [0]\n", ["arms=... is missing"]),
    "no mapping": ("- a\n", ["there is a list in", "a study has keys: question"]),
    "an empty file": ("", ["there is nothing in", "a study has keys: question"]),
    "no YAML": ("a: [\n", ["invalid YAML"]),
    "unknown key": (SOUND + "seed: 3\n", ["unknown key 'seed'", "did you mean 'seeds'?"]),
    "unknown key of an arm": (SOUND + "  b: {override: [x=1]}\n", ["'arms.b.override'"]),
    "an arm that is a list": (
        SOUND + "  b: [algo=ppo]\n",
        ["arms.b=['algo=ppo']", "keys and their values, of: overrides, weights_of"],
    ),
    "arms that are a list": ("question: q\nseeds: [0]\narms: [spo]\n", ["arms=['spo']", "keys"]),
    "no arm": ("question: q\nseeds: [0]\narms: {}\n", ["arms={}; it takes at least 1"]),
    "one name for two arms": (SOUND + "  a: {overrides: [algo=ppo]}\n", ["a stands twice"]),
    "no seeds": (SOUND.replace("[0]", "[]"), ["seeds"]),
    "no such parent": (SOUND + "  b: {weights_of: c}\n", ["arms.b.weights_of=c"]),
    "nothing kept": (SOUND + "  b: {rollouts_of: a}\n", ["train.keep_samples=true"]),
    "both": (
        SOUND + "  b: {rollouts_of: a, replay_of: a}\n",
        ["arms.b has rollouts_of and replay_of"],
    ),
    "nothing to replay": (SOUND + "  b: {replay_of: a}\n", ["train.keep_samples=true"]),
    "two generations": (
        SOUND + "  b: {weights_of: a}\n  c: {weights_of: b}\n",
        ["arms.c.weights_of=b"],
    ),
    "a choice from other weights": (
        SOUND + "  b: {weights_of: a}\nchoice: {key: k, values: [1, 2], overrides: [], seed: 0}\n",
        ["arms.b.weights_of=a with a choice"],
    ),
    "trials on a seed of the study": (
        SOUND + "tuning: {overrides: [], seed: 0, rescore_seeds: [1, 2]}\n",
        ["tuning.seed=0", "a seed of the study"],
    ),
    "an arm that is also a pair": (
        SOUND + "  b: {overrides: [algo=ppo]}\n  b-a: {overrides: [algo=grpo]}\n",
        ["arms.b-a can be read as b minus a; write b_a"],
    ),
    "a pair that is also another": (
        SOUND + "".join(f"  {arm}: {{overrides: [algo=ppo]}}\n" for arm in ("a-b", "b-c", "c")),
        ["a-b-c can be read as a minus b-c and as a-b minus c", "_ in place of -"],
    ),
    "a claim on no arm": (
        SOUND + "claims: [{says: s, a: a, b: x, metric: pass@1}]\n",
        ["the claim 's' names x"],
    ),
    "a claim on no metric": (
        SOUND + "  b: {overrides: [x=1]}\nclaims: [{says: s, a: a, b: b, metric: pass@x}]\n",
        ["the claim 's' has no such metric: pass@x"],
    ),
    "a gain over itself": (SOUND + "gains: [[a, a]]\n", ["gains: ['a', 'a']: a gain has two arms"]),
    "a gain over no arm": (SOUND + "gains: [[a, x]]\n", ["gains: ['a', 'x']: x is not an arm"]),
    "a gain of one": (SOUND + "gains: [[a]]\n", ["gains: ['a']: a gain has two arms"]),
    "no such control": (SOUND + "control: x\n", ["control=x", "it must be an arm: a"]),
    "a margin of 2": (SOUND + "margin: 2\n", ["margin=2", "below 1"]),
    "a choice on a seed of the study": (
        SOUND + "choice: {key: k, values: [1, 2], overrides: [], seed: 0}\n",
        ["choice.seed=0", "a seed of the study"],
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line(mistake, tmp_path):
    text, words = MISTAKES[mistake]
    (tmp_path / "s.yaml").write_text(text)
    with pytest.raises(UserError) as error:
        read(f"{tmp_path}/s.yaml")
    assert "\n" not in str(error.value)
    assert all(word in str(error.value) for word in [f"study={tmp_path}/s.yaml", *words])


def test_a_dash_that_makes_no_pair_is_part_of_a_name(tmp_path):
    (tmp_path / "s.yaml").write_text(SOUND + "  b-1: {overrides: [algo=ppo]}\n")
    assert list(read(f"{tmp_path}/s.yaml").arms) == ["a", "b-1"]


def test_the_guide_s_study_composes_and_names_its_pairs(tmp_path):
    block = re.search(r"```yaml\n(question.*?)```", GUIDE.read_text(), re.DOTALL)[1]
    (tmp_path / "s.yaml").write_text(block)
    study = read(f"{tmp_path}/s.yaml")
    assert len(jobs_of(study, study.seeds, list(study.arms), [])) == 9
    assert [(one["a"], one["b"]) for one in study.contrasts] == [("no_std", "grpo")] * 2


def test_an_unknown_study_is_told_the_known_ones():
    with pytest.raises(UserError, match=r"study=nimi: .* choose one of .*mini"):
        read("nimi")


def test_an_arm_that_cannot_run_is_named(tmp_path):
    (tmp_path / "s.yaml").write_text(SOUND + "  b: {overrides: [algo=ppo, train.lg=2]}\n")
    study = read(f"{tmp_path}/s.yaml")
    with pytest.raises(UserError, match=r"arm b: unknown key 'train.lg'; did you mean 'train.lag'"):
        jobs_of(study, [0], list(study.arms), [])


@pytest.mark.parametrize("both", ["algo=ppo steps=9", "algo=ppo,steps=9", "algo=ppo, steps=9"])
def test_two_keys_in_one_override_are_told_apart(both, tmp_path):
    (tmp_path / "s.yaml").write_text(f"{SOUND}  b: {{overrides: ['{both}']}}\n")
    study = read(f"{tmp_path}/s.yaml")
    with pytest.raises(UserError, match=f"arm b: '{both}': give each key alone: algo=ppo steps=9$"):
        jobs_of(study, [0], list(study.arms), [])


def test_arms_that_would_be_the_same_runs_are_refused(tmp_path):
    (tmp_path / "s.yaml").write_text(SOUND + "  b: {overrides: [algo=sft, train.lag=0]}\n")
    study = read(f"{tmp_path}/s.yaml")
    with pytest.raises(UserError, match="arms a and b have the same configuration"):
        jobs_of(study, [0, 1], list(study.arms), [])
    assert len(jobs_of(study, [0, 1], ["b"], [])) == 2


def test_an_arm_whose_values_are_not_tuned_yet_is_named(tmp_path):
    (tmp_path / "s.yaml").write_text(SOUND + "  b: {overrides: [experiment=tuned_s_b]}\n")
    study = read(f"{tmp_path}/s.yaml")
    with pytest.raises(UserError, match="arm b: experiment=tuned_s_b: not tuned yet; `make tune`"):
        jobs_of(study, [0], list(study.arms), [])


def test_what_is_named_ahead_goes_to_the_report(tmp_path):
    (tmp_path / "s.yaml").write_text(
        SOUND
        + "  b: {overrides: [algo=ppo]}\nmargin: 0.03\ncontrol: a\ngains: [[b, a]]\n"
        + "claims: [{says: s, a: a, b: b, metric: pass@10, margin: 0.05}]\n"
    )
    study = read(f"{tmp_path}/s.yaml")
    assert study.contrasts == [
        {"a": "b", "b": "a", "metric": None, "margin": None},
        {"a": "a", "b": "b", "metric": "pass@10", "margin": 0.05},
    ]
    assert report_keys(study, {"a", "b"}) == ["margin=0.03", "control=a"]
    assert report_keys(study, {"b"}) == ["margin=0.03"]  # no finished run of the control
    (tmp_path / "s.yaml").write_text(SOUND)
    assert report_keys(read(f"{tmp_path}/s.yaml"), {"a"}) == []


NAMES = [file.stem for file in HERE.glob("*.yaml")]
# tens of configurations each; a study that is run composes them all before its first run
LONG = dict.fromkeys(("atlas", "designs", "mini", "offpolicy", "remix"), pytest.mark.slow)


@pytest.mark.parametrize("name", [pytest.param(n, marks=LONG.get(n, ())) for n in NAMES])
def test_every_study_here_composes(name):
    study = read(name)
    untuned = [arm for arm in study.arms if study.untuned_files(arm)]
    if untuned:
        with pytest.raises(UserError, match=f"arm {untuned[0]}: .*not tuned yet"):
            jobs_of(study, study.seeds[:1], list(study.arms), [])
    for arm in untuned:
        kept = [
            each for each in study.arms[arm].overrides if not each.startswith("experiment=tuned")
        ]
        study.arms[arm].overrides = kept
    jobs = jobs_of(study, study.seeds[:1], list(study.arms), [])
    assert {job.arm for job in jobs} == set(study.arms)
    assert len({job.label for job in jobs}) == len(jobs)
    splits = {config_with_seed(job.overrides, 0).eval.split for job in jobs if not job.trial}
    rates = name == "feedback_rates"  # of other studies: on the problems for tuning
    assert splits == {"test" if study.final else "tune" if rates else "choose"}
    # the others choose designs
    assert study.final == (name in {"mini", "size", "real", "curves", "first", "feedback"})
    commented = (HERE / f"{name}.yaml").read_text().splitlines()[0]
    made_by = {"mini": "study", "atlas": "atlas"}
    assert commented == f"# make {made_by.get(name, f'study STUDY={name}')}"
