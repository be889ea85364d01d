import itertools
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from analysis.experiment import build_experiment
from analysis.findings import (
    difference_matrix,
    find_pair,
    format_difference,
    headline_metrics,
    headlines,
)
from analysis.intervals import estimate, seed_means
from analysis.metrics import DISTINCT, TITLES
from analysis.rendering import difference_matrices
from analysis.runs import load_run
from analysis.tables import power_table

NOTHING_NAMED = {"contrasts": [], "against_control": [], "bases": []}
SMALL = {"problems": 30, "samples": 10, "every": 20}


@pytest.fixture
def experiment(tmp_path, make_run):
    skills = {"spo": 6.0, "ppo": 1.5}
    paths = [
        make_run(tmp_path, algo, seed, skill=skill, **SMALL)
        for algo, skill in skills.items()
        for seed in range(3)
    ]
    return build_experiment("mini", [load_run(path) for path in paths])


def test_the_answer_names_who_is_first_and_by_how_much(experiment):
    first = headlines(experiment)[0]
    best = experiment.pairs[0].reversed()  # spo - ppo
    assert first.title == "pass@1"
    who, how_much = first.statements  # of two groups letters would say the same again
    assert re.fullmatch(r"spo \(0\.\d+\) is above ppo \(0\.\d+\)\.", who)
    assert how_much.startswith(f"spo − ppo: +{best.difference.mean:.3f} [+")
    assert how_much.endswith("]; 3 seeds, 30 problems.")
    assert first.lines() == ["pass@1:", f"  {who}", f"  {how_much}"]


def test_of_many_groups_the_best_and_those_that_may_be_as_good_are_named(experiment):
    """Eight groups a..h, each 0.05 below the one before, told apart from the third after it on."""
    names, grid = "abcdefgh", _grid(experiment)
    trained = [
        SimpleNamespace(
            label=name, grids={"pass@1": replace(grid, values=grid.values - 0.05 * place)}
        )
        for place, name in enumerate(names)
    ]
    one = experiment.pairs[0].reversed()
    pairs = [
        replace(one, a=a, b=b, adjusted_p=0.01 if names.index(b) - names.index(a) > 2 else 0.4)
        for a, b in itertools.combinations(names, 2)
    ]
    (headline,) = headlines(
        SimpleNamespace(trained=trained, models=trained, pairs=pairs, ks=(1,), **NOTHING_NAMED)
    )
    mean = float(estimate(seed_means(grid.values, grid.weights)).mean)
    means = [f"{name} ({mean - 0.05 * place:.3f})" for place, name in enumerate(names)]
    lead, alike, behind, others, ranked = headline.statements[:5]
    difference, _, ends = _minus_a(pairs, "b").partition(" ")
    assert lead == (
        f"Highest mean over 3 seeds and 30 problems: {means[0]}. Next is {means[1]}, not "
        f"significantly lower (difference {difference}, 95 % interval {ends})."
    )
    assert alike == f"No significant difference from a: {means[1]} and {means[2]}."
    assert behind == (
        "Significantly below a (5 % level, corrected for all 28 pairs): 5 of the other 7, from "
        f"d, {_minus_a(pairs, 'd')} to h, {_minus_a(pairs, 'h')}."
    )
    assert others.startswith("Other pairs: groups that share a letter below do not differ")
    assert ranked == f"By mean: {', '.join(means[:-1])} and {means[-1]}."
    gap = [
        replace(pair, adjusted_p=0.4) if (pair.a, pair.b) == ("a", "f") else pair for pair in pairs
    ]
    (headline,) = headlines(
        SimpleNamespace(trained=trained, models=trained, pairs=gap, ks=(1,), **NOTHING_NAMED)
    )
    _, alike, behind, *_ = headline.statements
    only = [replace(p, adjusted_p=0.4) if p.b != "h" else p for p in pairs]
    (last,) = headlines(
        SimpleNamespace(trained=trained, models=trained, pairs=only, ks=(1,), **NOTHING_NAMED)
    )
    assert last.statements[2].endswith(f"28 pairs): h, {_minus_a(pairs, 'h')}.")
    assert alike.endswith(f": {means[1]}, {means[2]} and {means[5]}.")  # f's interval is not wider
    assert "4 of the other 7" in behind
    every = [replace(pair, adjusted_p=0.01) for pair in pairs]
    (headline,) = headlines(
        SimpleNamespace(trained=trained, models=trained, pairs=every, ks=(1,), **NOTHING_NAMED)
    )
    assert f"Next is {means[1]}, significantly lower (" in headline.statements[0]


def test_of_many_groups_the_models_before_training_are_named_if_they_are_few(experiment):
    names, grid = "abcdefgh", _grid(experiment)
    trained = [SimpleNamespace(label=n, grids={"pass@1": grid}) for n in names]
    one = experiment.pairs[0].reversed()
    pairs = [replace(one, a=a, b=b, adjusted_p=0.4) for a, b in itertools.combinations(names, 2)]

    def said(**bases):
        given = [
            SimpleNamespace(
                label=label, grids={"pass@1": replace(grid, values=0 * grid.values + score)}
            )
            for label, score in bases.items()
        ]
        many = SimpleNamespace(
            trained=trained,
            models=trained,
            pairs=pairs,
            ks=(1,),
            **NOTHING_NAMED | {"bases": given},
        )
        (headline,) = headlines(many)
        return [text for text in headline.statements if text.startswith("Before training")]

    named = {"base name=nano": 0.05, "base name=later": 0.4}
    assert said(**named) == ["Before training: nano (0.050) and later (0.400)."]
    assert said(nano=0.05) == ["Before training: 0.050."]
    assert said(nano=0.05, later=0.4) == ["Before training: nano (0.050) and later (0.400)."]
    assert said(a=0.1, b=0.2, c=0.3, d=0.4) == said() == []


def test_of_many_groups_an_uncertain_one_among_the_best_is_explained(experiment):
    """Of a..h, f is as good as a by the test, while d and e, which are higher, are below a."""
    names, grid = "abcdefgh", _grid(experiment)
    trained = [
        SimpleNamespace(label=n, grids={"pass@1": replace(grid, values=grid.values - 0.05 * i)})
        for i, n in enumerate(names)
    ]
    one = experiment.pairs[0].reversed()
    wide = replace(one.difference, low=one.difference.low - 1, high=one.difference.high + 1)
    pairs = [
        replace(one, a=a, b=b, adjusted_p=0.01 if names.index(b) - names.index(a) > 2 else 0.4)
        for a, b in itertools.combinations(names, 2)
    ]
    uncertain = [
        replace(pair, adjusted_p=0.4, difference=wide) if (pair.a, pair.b) == ("a", "f") else pair
        for pair in pairs
    ]
    (headline,) = headlines(
        SimpleNamespace(trained=trained, models=trained, pairs=uncertain, ks=(1,), **NOTHING_NAMED)
    )
    assert headline.statements[1].endswith(
        f" The difference of f, {_minus_a(uncertain, 'f')}, is less certain than that of d, "
        f"{_minus_a(uncertain, 'd')}, which is significant."
    )


def _minus_a(pairs, other):
    return format_difference(find_pair(pairs, other, "a"))


def _grid(experiment):
    return next(model for model in experiment.trained if model.label == "spo").grids["pass@1"]


def test_the_matrix_is_row_minus_column_with_a_star_where_separated(experiment):
    heading, rows = difference_matrix(experiment, "pass@1")
    assert heading == ["row − column", "ppo", "spo"]
    assert rows[0][1] == rows[1][2] == ""
    assert rows[0][2].startswith("−0.")
    assert rows[1][1].startswith("+0.")
    assert all(cell.endswith("] *") for cell in (rows[0][2], rows[1][1]))
    _, brief = difference_matrix(experiment, "pass@1", intervals=False)
    assert re.fullmatch(r"\+0\.\d\d \*", brief[1][1]) and brief[0][1] == ""


def test_a_metric_of_one_group_or_of_none_has_no_matrix(experiment):
    """Programs of which none was accepted have no diversity among the accepted ones."""
    assert [title for title, _ in difference_matrices(experiment)] == [
        TITLES.get(m, m) for m in headline_metrics(experiment)
    ]
    for without in (experiment.trained[:1], experiment.trained):
        for model in without:
            model.grids.pop(DISTINCT, None)
        assert [title for title, _ in difference_matrices(experiment)] == ["pass@1", "pass@10"]


def test_what_the_design_could_see_has_parts_that_add_up(experiment):
    table = power_table(experiment.trained, experiment.pairs, 0.05).set_index("metric")
    parts = [f"of_{part}" for part in ("seeds", "problems", "interaction", "sampling")]
    assert table.loc["pass@1", parts].sum() == pytest.approx(1)
    assert table.loc["pass@1", "smallest_difference"] > 0.05
    assert bool(table.loc["pass@1", "separated"]) == experiment.pairs[0].separated
    assert table.loc["pass@1", "samples_needed"] > 10


def test_separated_pairs_are_said_before_the_letters_that_show_all(experiment):
    """As three seeds leave it: the ends are far apart, and each is near a third in the middle."""
    pairs = {("a", "b"): 0.4, ("a", "c"): 0.01, ("b", "c"): 0.4}
    grid = _grid(experiment)
    trained = [
        SimpleNamespace(label=label, grids={"pass@1": replace(grid, values=grid.values - less)})
        for label, less in (("a", 0.0), ("b", 0.1), ("c", 0.2))
    ]
    one = experiment.pairs[0].reversed()
    chain = [replace(one, a=a, b=b, adjusted_p=p) for (a, b), p in pairs.items()]
    experiment_of_three = SimpleNamespace(
        trained=trained, models=trained, pairs=chain, ks=(1,), **NOTHING_NAMED
    )
    (headline,) = headlines(experiment_of_three)
    headline = " ".join(headline.statements)
    shown = "Groups that share a letter are not separated: a a, b ab and c b."
    assert headline.index("is above c (") < headline.index(shown)
    assert "The data do not separate" not in headline
    none = [replace(pair, adjusted_p=1.0) for pair in chain]
    (headline,) = headlines(
        SimpleNamespace(trained=trained, models=trained, pairs=none, ks=(1,), **NOTHING_NAMED)
    )
    assert headline.statements[0].startswith("The data do not separate any two of a (")
    assert not any("letter" in statement for statement in headline.statements)
    two = SimpleNamespace(
        trained=trained[:2], models=trained[:2], pairs=none[:1], ks=(1,), **NOTHING_NAMED
    )
    assert headlines(two)[0].statements[0].startswith("The data do not separate a (")


def test_a_difference_that_nothing_could_hide_is_no_detectable_one(experiment):
    """Where two groups differ by the same everywhere, sums leave a spread of 1e-17."""
    one = replace(experiment.pairs[0].reversed(), adjusted_p=1.0)
    rounding = dict.fromkeys(("seed_variance", "problem_variance", "residual_variance"), 1e-34)
    still = replace(one, estimate=replace(one.estimate, **rounding))
    kept = [model for model in experiment.trained if "pass@1" in model.grids]
    trained = [SimpleNamespace(label=s.label, grids={"pass@1": s.grids["pass@1"]}) for s in kept]
    for pair, said in ((one, True), (still, False)):
        (headline,) = headlines(
            SimpleNamespace(trained=trained, models=trained, pairs=[pair], ks=(1,), **NOTHING_NAMED)
        )
        assert ("would detect only a true" in " ".join(headline.statements)) is said


def test_an_interval_and_a_test_that_disagree_are_said_whichever_way_the_difference_points(
    experiment,
):
    one = replace(experiment.pairs[0].reversed(), adjusted_p=0.051)  # spo - ppo
    assert one.difference.low > 0
    kept = [model for model in experiment.trained if "pass@1" in model.grids]
    trained = [SimpleNamespace(label=s.label, grids={"pass@1": s.grids["pass@1"]}) for s in kept]
    (headline,) = headlines(
        SimpleNamespace(trained=trained, models=trained, pairs=[one], ks=(1,), **NOTHING_NAMED)
    )
    assert "], not separated by the stricter test; 3 seeds" in headline.statements[1]
    against = replace(one, a="ppo", b="spo")
    (headline,) = headlines(
        SimpleNamespace(trained=trained, models=trained, pairs=[against], ks=(1,), **NOTHING_NAMED)
    )
    assert (
        headline.statements[1].startswith("spo − ppo: −")
        and "by the stricter test" in headline.statements[1]
    )


def test_what_cannot_be_told_of_one_metric_is_said_of_that_one(experiment):
    """Of distinct programs there may be less: no two groups with two seeds, or one problem."""
    pairs = [
        replace(pair, seeds=1, adjusted_p=float("nan")) if pair.metric == "pass@10" else pair
        for pair in experiment.pairs
    ]
    by_metric = {one.title: one.statements for one in headlines(replace_pairs(experiment, pairs))}
    assert len(by_metric["pass@10"]) == 1 and "training randomness" in by_metric["pass@10"][0]
    assert "is above" in by_metric["pass@1"][0]


def replace_pairs(experiment, pairs):
    return SimpleNamespace(
        trained=experiment.trained,
        models=experiment.models,
        ks=experiment.ks,
        pairs=pairs,
        runs=experiment.runs,
        **NOTHING_NAMED,
    )


def test_one_group_says_how_far_it_came(experiment):
    alone = replace(experiment, models=[s for s in experiment.models if s.label in ("base", "spo")])
    (headline,) = headlines(alone)[0].lines()
    assert headline.startswith("Only spo was trained here")
    assert re.search(r"pass@1 0\.\d+ → 0\.\d+, pass@10 ", headline)


def test_one_group_without_a_base_says_so_much(experiment):
    alone = replace(experiment, models=[s for s in experiment.models if s.label == "spo"])
    (headline,) = headlines(alone)[0].lines()
    assert headline == "Only spo was trained here, so there is nothing to compare it with."


def test_one_seed_is_no_answer(tmp_path, make_run):
    paths = [make_run(tmp_path, algo, 0, **SMALL) for algo in ("spo", "ppo")]
    experiment = build_experiment("mini", [load_run(path) for path in paths])
    (headline,) = headlines(experiment)[0].lines()
    assert "training randomness" in headline
    assert not len(power_table(experiment.trained, experiment.pairs, 0.05))
