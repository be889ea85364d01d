import pytest

from analysis.load.groups import LONGEST, distinguish, listed, natural, plain


def test_short_labels_name_every_difference():
    variants = [{"a.rate": 1, "b.rate": 1, "x": 1}, {"a.rate": 2, "b.rate": 3, "x": 2}]
    assert distinguish("n", variants) == ["n a.rate=1 b.rate=1 x=1", "n a.rate=2 b.rate=3 x=2"]


def test_what_the_algorithm_does_comes_first():
    variants = [{"algo.q0": "group", "a.x": 1}, {"algo.q0": "online", "a.x": 2}]
    assert distinguish("spo", variants) == ["spo q0=group x=1", "spo q0=online x=2"]


def test_of_many_differences_the_fewest_that_tell_apart_are_named():
    variants = [
        {
            "engine.memory_share": 0.1 * i,
            "model.path": f"/data/models/a-rather-long-name-of-a-model-{i}/final",
            "train.micro_batch": 2**i,
            "train.prompts": 16 + i % 2,
            "train.sync_every": (1, 5, 20)[i // 2],
            "algo.learning_rate": (1e-4, 3e-4)[i % 2],
        }
        for i in range(6)
    ]
    labels = distinguish("grpo", variants)
    assert labels[0] == "grpo learning_rate=0.0001 sync_every=1"
    assert labels[5] == "grpo learning_rate=0.0003 sync_every=20"
    assert len(set(labels)) == 6


def test_what_one_does_without_says_more_than_a_tuned_amount():
    tuned = [{"algo.beta": 0.02896, "algo.learning_rate": 6e-4}, {"algo.beta": 0.08137}]
    shares = [{"train.offline_share": 0.0, "train.replay.share": 0}, {"train.offline_share": 0.5}]
    variants = [one | other for one, other in zip(tuned, shares, strict=True)]
    assert distinguish("spo", variants) == ["spo offline_share=0", "spo offline_share=0.5"]


@pytest.mark.parametrize("tail", ["", "/final"])
def test_long_values_are_cut_and_labels_stay_apart(tail):
    variants = [{"task.path": f"{'x' * 90}{i}{'y' * 90}{tail}"} for i in range(3)]
    labels = distinguish("spo", variants)
    assert len(set(labels)) == 3
    assert max(map(len, labels)) <= LONGEST


def test_values_read_as_one_would_type_them():
    left_out = {"no tests": 3, "any valid answer": 12}
    assert plain(left_out) == "no tests 3, any valid answer 12"
    assert plain(["EASY", "MEDIUM"]) == "[EASY,MEDIUM]"
    assert plain({"gpu": None, "cpus": 2, "ok": True}) == "gpu null, cpus 2, ok true"
    assert (plain(3e-4), plain(1.0)) == ("0.0003", "1")


def test_lists_in_words():
    assert listed(["a"]) == "a"
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert listed(list("abcdefgh")) == "a, b, c, d, e, f and 2 more"


def test_numbers_in_labels_are_in_their_own_order():
    labels = ["spo n=20", "spo n=5", "spo n=0.5", "grpo"]
    assert sorted(labels, key=natural) == ["grpo", "spo n=0.5", "spo n=5", "spo n=20"]
