"""The whole loop with the bundled model and the real embedded sandbox."""

import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path

import pandas as pd
import pytest
from transformers import AutoModelForCausalLM

from envs.tasks import open_task
from experiments.policy import loading
from tests.command_line import merged
from tests.experiments.compose import assert_same, config
from tests.experiments.compose import finished as finished_run
from tests.selection import all_but_slow

ROOT = Path(__file__).resolve().parents[2]
SMALL = [
    *("steps=3", "eval.every=2", "eval.samples=2", "eval.k=[1,2,5]", "eval.kl_samples=1"),
    *("task.max_response_tokens=32", "train.prompts=4", "train.group_size=4"),
    *("task.train_problems=12", "task.choose_problems=4", "task.test_problems=4"),
    *("task.tune_problems=2", "sandbox=embedded", "algo.learning_rate=1e-3"),
    "train.warmup_steps=0",
]


def config_of(output_dir, *overrides):
    return config(*SMALL, f"output_dir={output_dir}", *overrides)


def run(output_dir, *overrides):
    return finished_run(*SMALL, f"output_dir={output_dir}", *overrides)


MONTE_CARLO = ["algo=spo", "algo.q0=monte_carlo", "algo.q0_samples=4"]
CASES = {
    "spo-half-online-stale": [*MONTE_CARLO, "train.offline_share=0.5", "train.sync_every=2"],
    "ppo": ["algo=ppo"],
    "dr-po": ["algo=ppo", "train.reset_share=0.5", "train.keep_samples=true"],
    "segment_tree": [
        *("algo=segment_tree", "algo.branches=[2,2]", "algo.segment=18", "train.keep_samples=true"),
        "task.reward.overlong=[8,24]",  # of whole responses, also where they were given tokens
    ],
    "grpo": ["algo=grpo", "train.sync_every=2"],
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The run folder of a case, trained once. Judging overlaps generation."""
    from experiments.rollout import generate

    folders = {}

    def of(case):
        if case not in folders:
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(generate, "default_workers", lambda: 2)
                folders[case] = run(tmp_path_factory.mktemp(case), *CASES[case])
        return folders[case]

    return of


@pytest.mark.parametrize("case", CASES)
def test_every_algorithm_runs_and_leaves_a_whole_run_folder(case, finished):
    folder = finished(case)
    info = json.loads((folder / "run.json").read_text())
    assert info["status"] == "finished"
    assert info["sandbox"]["name"] == "embedded"
    assert info["judge_version"]
    assert info["data_hash"]
    metrics = pd.read_parquet(folder / "metrics.parquet")
    assert metrics["step"].tolist() == [1, 2, 3]
    assert metrics["budget/optimiser_steps"].tolist() == [1, 2, 3]
    assert metrics["loss"].notna().all()
    assert metrics["eval/kl_ref"].notna().tolist() == [False, True, True]
    spent = metrics.filter(like="budget/").iloc[-1]
    beside = spent["budget/reference_programs"] + spent["budget/offline_programs"]
    fresh = 3 * 4 * 4 * (1 - (0.5 if "train.offline_share=0.5" in CASES[case] else 0))
    assert beside < spent["budget/judged_programs"] <= beside + fresh
    assert not (folder / "metrics.jsonl").exists()
    evals = pd.read_parquet(folder / "evals.parquet")
    assert sorted(evals["step"].unique()) == [0, 2, 3]
    assert len(evals) == 3 * 4 * 2
    needed = {"step", "problem", "sample", "verdict", "passed", "total", "program", "tokens"}
    assert needed <= set(evals.columns)
    asked = pd.read_parquet(folder / "problems.parquet").set_index("problem")["prompt"]
    assert set(asked.index) == set(evals["problem"]) and (asked.str.len() > 20).all()
    assert (folder / "config.yaml").is_file()
    assert (folder / "checkpoints" / "final" / "config.json").is_file()


def test_policy_lag_and_syncs_follow_sync_every(finished):
    metrics = pd.read_parquet(finished("grpo") / "metrics.parquet")
    assert metrics["policy_lag"].tolist() == [0, 1, 0]
    assert metrics["budget/weight_syncs"].tolist() == [0, 1, 1]


def test_batches_that_train_the_critic_alone_are_charged_as_all_others(finished, tmp_path):
    warm = run(tmp_path, "algo=ppo", "algo.critic_warmup=2", "steps=2", "eval.every=0")
    spent, usual = (pd.read_parquet(f / "metrics.parquet") for f in (warm, finished("ppo")))
    assert spent["grad_norm"].gt(0).all() and spent["critic_grad_norm"].gt(0).all()
    assert spent["kl_ref"].tolist() == pytest.approx([0, 0], abs=1e-6)  # the policy has not moved
    assert usual["kl_ref"][1] > 1e-4
    of_policy_steps = ["step_clipped", "weight/accepted", "weight/rejected", "weight/others"]
    assert spent.reindex(columns=of_policy_steps).isna().all(axis=None)
    assert usual[of_policy_steps].notna().all(axis=None) and "critic_step_clipped" in spent
    costs = [name for name in spent.columns if name.startswith("budget/")]
    assert spent.loc[0, costs].to_dict() == usual.loc[0, costs].to_dict()
    rising = ("generated_tokens", "trained_tokens", "judged_programs", "optimiser_steps")
    for name in rising:
        first, second = spent[f"budget/{name}"]
        assert 0 < first < second, name


def test_continuations_are_paid_for_apart_from_the_responses_and_their_values_are_kept(
    finished, tmp_path
):
    short = ("algo.continuations=3", "steps=2", "eval.every=0", "train.keep_prefix_values=true")
    folder = run(tmp_path, "algo=vineppo", *short)
    spent, usual = (pd.read_parquet(f / "metrics.parquet") for f in (folder, finished("ppo")))
    first, second = spent["budget/prefix_tokens"]
    assert 0 < first < second and not usual["budget/prefix_tokens"].any()
    for cost in ("generated_tokens", "trained_tokens"):  # the same responses, by the base
        assert spent[f"budget/{cost}"][0] == usual[f"budget/{cost}"][0]
    assert spent["budget/judged_programs"][0] > usual["budget/judged_programs"][0]
    assert spent["value/explained_variance"].notna().any() and spent["grad_norm"].gt(0).all()
    kept = [pd.read_feather(file) for file in sorted(folder.glob("prefix_values/step-*.arrow"))]
    assert [len(values) / 16 for values in kept] == pytest.approx(spent["prefix/cuts"].tolist())
    assert kept[0]["value"].between(0, 1).all() and kept[0]["error"].between(0, 0.5).all()
    of_prompts = kept[0][kept[0]["cut"] == 0].groupby("problem")["value"]
    assert of_prompts.size().tolist() == [4] * 4 and (of_prompts.nunique() == 1).all()


def test_half_of_a_group_goes_on_from_programs_of_the_data_set_which_no_loss_reads(finished):
    """DR-PO: the prefix is context, judged with what follows, and neither paid for nor trained."""
    folder, tokenizer = finished("dr-po"), loading.load_tokenizer(config_of("").model)
    problems = {p.name: p for p in open_task(config_of("").task).train}
    metrics = pd.read_parquet(folder / "metrics.parquet")
    rows = pd.concat(map(pd.read_feather, sorted(folder.glob("samples/step-*.arrow"))))
    given = rows[rows["turns"].notna()]
    assert set(given.groupby(["step", "problem"]).size()) <= {1, 2} and len(given) > 15
    format_response = open_task(config_of("").task).response
    texts, lengths = [], []
    for row in given.itertuples():
        before, prefix, after = row.turns
        assert before == 0 < min(prefix, after) and prefix + after == len(row.tokens)
        assert not row.logps[:prefix].any() and (row.logps[prefix:] < 0).all()
        whole = tokenizer.decode(row.tokens, skip_special_tokens=True)
        texts.append(tokenizer.decode(row.tokens[:prefix]))
        programs = [format_response(text) for text in problems[row.problem].solutions]
        assert any(program.startswith(texts[-1]) for program in programs)
        assert whole.startswith(texts[-1]) and row.program in whole
        lengths.append(prefix)
    assert len(set(texts)) > 8
    read = [metrics["budget/observation_tokens"].iloc[-1], sum(map(len, rows["tokens"]))]
    assert read[0] == sum(lengths)
    for paid in ("generated_tokens", "trained_tokens"):
        assert metrics[f"budget/{paid}"].iloc[-1] == read[1] - sum(lengths)
    assert metrics["kl_writer"].abs().max() < 1e-6  # log-probs follow the prefix
    assert metrics["budget/offline_programs"].iloc[-1] > 0


def test_a_group_is_a_tree_whose_segments_are_generated_and_learned_from_once(finished):
    folder = finished("segment_tree")
    metrics = pd.read_parquet(folder / "metrics.parquet")
    files = sorted(folder.glob("samples/step-*.arrow"))
    rows = pd.concat(map(pd.read_feather, files)).to_dict("records")
    own, shared = 0, []
    for at in range(0, len(rows), 4):
        first, other, third, fourth = rows[at : at + 4]
        assert first["turns"] is third["turns"] is None
        for one, branch in ((first, other), (third, fourth)):
            _, given, after = branch["turns"]
            assert given == min(18, len(one["tokens"])) and given + after == len(branch["tokens"])
            assert list(branch["tokens"][:given]) == list(one["tokens"][:given])
            own += len(one["tokens"]) + after
            shared.append(after == 0)
            assert after or branch["reward"] == one["reward"]
    assert 0 < sum(shared) < len(shared)  # branches that ended in their first segment
    assert metrics["budget/generated_tokens"].iloc[-1] == own
    assert metrics["budget/trained_tokens"].iloc[-1] == own
    assert metrics["kl_writer"].abs().max() < 1e-6  # each token after its own prefix
    assert metrics["grad_norm"].gt(0).any() and not metrics["budget/prefix_tokens"].any()


# Slow: what PPO adds, a critic, has no randomness of its own.
TWICE = ("spo-half-online-stale", "dr-po", "segment_tree", "ppo")


@pytest.mark.parametrize("case", all_but_slow(TWICE, slow=["ppo"]))
def test_the_same_seed_gives_the_same_numbers_to_the_bit_with_and_without_overlap(
    case, finished, tmp_path
):
    plain = run(tmp_path, *CASES[case], "runtime.overlap=false")
    assert_same(finished(case), plain, "metrics", "evals")


CACHES = ("base", "reference_rewards")


def test_equal_weights_with_another_config_share_no_cache(tmp_path):
    """Neither the base's evaluation nor SPO's reference rewards."""
    shutil.copytree(ROOT / "assets" / "nano", tmp_path / "model")
    settings = json.loads((tmp_path / "model" / "config.json").read_text())
    settings["rope_parameters"] = {"rope_theta": 500.0, "rope_type": "default"}
    (tmp_path / "model" / "config.json").write_text(json.dumps(settings))
    few = ["task.train_problems=2", "task.test_problems=1", "train.prompts=1", "train.group_size=2"]
    few += ["steps=1", "eval.every=0", "eval.samples=1", "eval.k=[1]", "eval.kl_samples=0"]
    paths = ([], [f"model.path={tmp_path}/model"])
    folders = [run(tmp_path, *MONTE_CARLO, *few, *path) for path in paths]
    files = {cache: [*(tmp_path / ".cache" / cache).iterdir()] for cache in CACHES}
    assert {cache: len(found) for cache, found in files.items()} == dict.fromkeys(CACHES, 2)
    one, other = (json.loads((folder / "run.json").read_text()) for folder in folders)
    assert one["weights"] == other["weights"] and one["policy"] != other["policy"]


def send_after_two_steps(sent, root):
    """Send this process a signal once a run in `root` has two rows, or after ten minutes."""
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        journals = list(root.glob("mini/*/metrics.jsonl"))
        if journals and journals[0].read_text().count("\n") >= 2:
            break
        time.sleep(0.05)
    os.kill(os.getpid(), sent)


# Slow: Ctrl-C's signal is handled in the same way (tests/experiments/run_dir).
@pytest.mark.parametrize(
    "sent", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_an_interrupted_run_ends_cleanly_and_is_readable(sent, tmp_path, call_here):
    given = merged(*SMALL, "algo=grpo", "steps=5000", "eval.every=0", f"output_dir={tmp_path}")
    sender = threading.Thread(target=send_after_two_steps, args=(sent, tmp_path), daemon=True)
    sender.start()
    done = call_here(*given)
    (folder,) = tmp_path.glob("mini/*")
    assert done.returncode == 130
    assert done.stdout.strip().split("\n")[-1] == f"run folder: {folder}"
    assert "Traceback" not in done.stderr
    info = json.loads((folder / "run.json").read_text())
    assert info["status"] == "interrupted"
    steps = len(pd.read_parquet(folder / "metrics.parquet"))
    assert steps >= 2
    # An interrupt between the optimiser's step and the row of its metrics loses the row only.
    assert info["checkpoints"]["interrupted"] in (steps, steps + 1)
    assert AutoModelForCausalLM.from_pretrained(folder / "checkpoints" / "interrupted")


def test_a_run_that_fails_keeps_its_weights_and_says_why(tmp_path, monkeypatch):
    from experiments import trainer

    def broken(self, step):
        if step:
            raise ZeroDivisionError("a bug")
        return evaluate(self, step)

    evaluate = trainer.Trainer.evaluate
    monkeypatch.setattr(trainer.Trainer, "evaluate", broken)
    outcome = trainer.train(config_of(tmp_path, "algo=grpo"))
    assert (outcome.status, outcome.expected) == ("failed", False)
    trace = outcome.folder / "traceback.txt"
    assert outcome.error == f"ZeroDivisionError: a bug; more in {trace}"
    assert "test_trainer.py" in trace.read_text()
    info = json.loads((outcome.folder / "run.json").read_text())
    assert info["status"] == "failed"
    assert info["checkpoints"] == {"interrupted": 2}
