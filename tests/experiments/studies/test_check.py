"""A wrong number on a page, in a sentence or in the counts is found."""

import re

import pandas as pd
import pytest

from analysis.packed import sums
from analysis.runs import SUMS
from experiments.errors import UserError
from experiments.studies.check import main as check
from experiments.studies.leaderboard import main as leaderboard
from experiments.studies.results.results import Results
from experiments.studies.results.sentences import Numbers, share
from experiments.studies.write import PROSE
from experiments.studies.write import main as write
from tests.experiments.studies.packed_study import copy_of, make_repository, make_study

SENTENCES = """
- file: README.md
  says: "PPO ends at {ppo.pass@1:interval}, SPO at {spo-x_1.5.pass@1}; the difference is
    {spo-x_1.5-ppo.pass@1}"
- {file: docs/results/study-s.md, says: "SPO gains {spo-x_1.5-ppo.pass@10 (T=1):mean} ({runs} runs"}
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory, make_run, add_further):
    """A README, a page with a discussion, and sentences of both."""
    folder = make_study(tmp_path_factory.mktemp("study"), make_run, add_further)
    root = tmp_path_factory.mktemp("repository")
    packed = make_repository(root, folder)
    (packed / "sentences.yaml").write_text(SENTENCES)
    numbers = Numbers(Results(packed)).text
    page = packed.with_suffix(".md")
    gain = numbers("spo-x_1.5-ppo.pass@10 (T=1):mean")
    words = f"SPO gains\n{gain} (4 runs, of 2 arms; `x=7`), pass@10 .123."
    page.write_text(page.read_text().replace(PROSE[0], f"{PROSE[0]}\n{words}"))
    (page.parent / "study-old.md").write_text("# An old page\n")
    assert leaderboard([f"root={root}"]) == 0
    ppo, spo = numbers("ppo.pass@1:interval"), numbers("spo-x_1.5.pass@1")
    difference = numbers("spo-x_1.5-ppo.pass@1")
    (root / "README.md").write_text(
        f"# A page\n\nPPO ends at\n{ppo}, SPO at {spo}; the\ndifference is {difference}.\n"
    )
    return root


@pytest.fixture
def copy(repository, tmp_path):
    return copy_of(repository, tmp_path)


def told(copy, capsys, *more):
    status = check([f"root={copy}", *more])
    return status, capsys.readouterr().out.splitlines()


def test_a_right_repository_passes_and_says_what_it_checked(repository, capsys):
    status, lines = told(repository, capsys, "verbose=true")
    assert (status, lines[-1]) == (0, "faults: 0")
    assert lines[-2] == "docs/results/leaderboard.md: written again from all studies"
    old, own, *others = lines[:-2]
    assert old == "docs/results/study-old.md: cannot be checked: no results in the repository"
    assert "2 sentences with 5 right numbers; 2 numbers of the discussion in no" in own
    assert [re.search(r":\d+: (\S+) in: ", line)[1] for line in others] == ["2", ".123"]


def test_the_leaderboard_has_every_arm_best_first_and_its_doubts(repository):
    page = (repository / "docs/results/leaderboard.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines()]
    heading, _, *rows = [row for row in rows if len(row) > 1]
    assert [row[:2] for row in rows] == [
        ["`spo-x_1.5`", "nano"],
        ["`ppo`", "nano"],
        ["base", "nano"],
    ]
    results = Results(repository / "docs/results/study-s")
    for row in rows[:2]:
        cells = dict(zip(heading, row, strict=True))
        values = results.row(results.label[cells["arm"].strip("`")])
        assert cells["pass@1"].startswith(f"{values['pass@1']:.3f} [")
        assert cells["generated tokens"] == f"{values['generated_tokens']:,.0f}"
        assert (cells["study"], cells["seeds"]) == ("[s](study-s.md)", "2")
        # not final, so on problems for choosing
        assert cells["doubts"] == "2 seeds planned; evaluated on problems for choosing"


def test_a_wrong_or_missing_leaderboard_is_found(copy, capsys):
    page = copy / "docs/results/leaderboard.md"
    row = next(line for line in page.read_text().splitlines() if line.startswith("| `ppo`"))
    planted(page, row, row.replace("problems for choosing", "test problems"))
    status, lines = told(copy, capsys)
    assert status == 1 and lines[-1] == "faults: 1"
    assert "test problems stands there; the results give" in lines[-2]
    page.unlink()
    status, lines = told(copy, capsys)
    assert status == 1 and lines[-2].startswith("docs/results/leaderboard.md:1: is missing; write")


def test_means_over_the_second_half_of_training_are_recomputed(copy, capsys):
    packed = copy / "docs/results/study-s"
    rows = pd.read_parquet(packed / "training.parquet")
    late = rows[(rows["step"] > 10) & rows["run"].str.startswith("ppo")]
    means = late.groupby("run")["reward_mean"].mean()
    text = f"{share(means.min())} to {share(means.max())}, on average {share(means.mean())}"
    values = "{ppo.reward_mean in second half:range}, on average {ppo.reward_mean in second half}"
    with (packed / "sentences.yaml").open("a") as file:
        file.write(f'- {{file: README.md, says: "Rewards are {values}."}}\n')
    with (copy / "README.md").open("a") as file:
        file.write(f"\nRewards are {text}.\n")
    assert told(copy, capsys)[1][-1] == "faults: 0"
    planted(copy / "README.md", f"Rewards are {share(means.min())}", "Rewards are .001")
    status, lines = told(copy, capsys)
    assert status == 1 and "README.md:" in lines[-2] and ".001 to " in lines[-2]
    for placeholder in ("ppo.nothing in second half", "ppo.loss in second half:letters"):
        with pytest.raises(UserError, match=r"ppo has no nothing|letters cannot stand here"):
            Numbers(Results(packed)).text(placeholder)


def planted(file, old, new):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


def test_a_wrong_cell_is_found(copy, capsys):
    page = copy / "docs/results/study-s.md"
    lines = page.read_text().splitlines()
    number, row = next((i, line) for i, line in enumerate(lines, 1) if line.startswith("| ppo "))
    cell = row.split("|")[3].strip()
    wrong = cell.replace(cell[:5], "0.999", 1)
    planted(page, row, row.replace(cell, wrong))
    status, lines = told(copy, capsys)
    fault = f"docs/results/study-s.md:{number}: ppo: {wrong} stands there; the results give {cell}"
    assert status == 1 and fault in lines and lines[-1] == "faults: 1"


def test_a_wrong_line_and_a_missing_one_are_found(copy, capsys):
    page = copy / "docs/results/study-s.md"
    planted(page, "4 runs finished", "5 runs finished")
    planted(page, "- small\n", "")
    status, lines = told(copy, capsys)
    assert status == 1 and lines[-1] == "faults: 2"
    assert any('"5 runs finished, at commit' in line and 'give "4 runs' in line for line in lines)
    assert any('the results give "- small"' in line for line in lines)


def test_a_wrong_number_in_a_sentence_is_found(copy, capsys):
    readme = copy / "README.md"
    spo = re.search(r"SPO at (\S+);", readme.read_text())[1]
    planted(readme, f"SPO at {spo}", "SPO at .999")
    status, lines = told(copy, capsys)
    assert status == 1 and lines[-1] == "faults: 1"
    (fault,) = [line for line in lines if line.startswith("README.md:4: ")]
    assert f".999 stands there; the results give {spo}, {{spo-x_1.5.pass@1}}" in fault


def test_a_sentence_with_other_words_is_missed_and_the_nearest_named(copy, capsys):
    planted(copy / "README.md", "PPO ends", "PPO stops")
    status, lines = told(copy, capsys)
    assert status == 1
    (missed,) = [line for line in lines if line.startswith("README.md:3: ")]
    assert 'is without the sentence "PPO ends at .' in missed
    assert '; nearest: "PPO stops at .' in missed


def test_a_sentence_that_is_gone_has_no_nearest(copy, capsys):
    (copy / "README.md").write_text("# Something else\n\nNo result stands here.\n")
    _, lines = told(copy, capsys)
    (missed,) = [line for line in lines if line.startswith("README.md:1: ")]
    assert "nearest" not in missed


@pytest.mark.parametrize("summed", [False, True])
def test_changed_counts_are_noticed(summed, copy, capsys):
    packed = copy / "docs/results/study-s"
    counts = pd.read_parquet(packed / "counts.parquet")
    best = counts["accepted"].idxmax()
    counts.loc[best, ["accepted", "forms"]] = 0, ""
    counts.to_parquet(packed / "counts.parquet")
    if summed:  # as the hash of one who means it
        files = [line.split()[1] for line in (packed / SUMS).read_text().splitlines()]
        lines = [f"{digest}  {file}\n" for file, digest in sums(packed, files).items()]
        (packed / SUMS).write_text("".join(lines))
    status, lines = told(copy, capsys)
    assert status == 1
    expected = "stands there; the results give" if summed else "counts.parquet:1: is not the file"
    assert any(expected in line for line in lines)


@pytest.mark.parametrize(
    ("says", "message"),
    [
        ("{spo.pass@1}", "write ARM.METRIC or A-B.METRIC; arms: base, ppo, spo-x_1.5"),
        ("{ppo.pass@3}", "ppo has no pass@3"),
        ("{ppo-base.pass@1}", "ppo and base have no difference in pass@1"),
        ("{ppo.pass@1:half}", "half is not one of mean, interval"),
    ],
)
def test_an_unknown_placeholder_is_one_line(says, message, copy, capsys):
    file = copy / "docs/results/study-s/sentences.yaml"
    file.write_text(f'- {{file: README.md, says: "{says}"}}')
    assert check([f"root={copy}"]) == 2
    assert message in capsys.readouterr().err


def test_a_folder_without_pages_is_no_success(tmp_path, capsys):
    assert check([f"root={tmp_path}"]) == 2
    assert "no docs/results/study-*.md; give the folder" in capsys.readouterr().err


def test_every_form_of_a_number(repository):
    results = Results(repository / "docs/results/study-s")
    text = Numbers(results).text
    mean, low, high = results.difference("ppo", "spo-x_1.5", "pass@1")

    def three(x):
        return f"{x:.3f}".replace("0.", ".").replace("-", "−")

    assert mean < 0 and text("ppo-spo-x_1.5.pass@1") == (
        f"{three(mean)} [{three(low)}, {three(high)}]"
    )
    assert text("spo-x_1.5-ppo.pass@1:mean") == f"+{three(-mean)}"
    assert text("spo-x_1.5-ppo.pass@1:mean,unsigned") == three(-mean)
    assert text("ppo.pass@1:letters") == results.letters("ppo", "pass@1") != "–"
    assert text("ppo.generated_tokens") == f"{results.row('ppo')['generated_tokens']:,.0f}"
    assert re.fullmatch(r"\.\d{3}", text("ppo.area")) and text("base.pass@1").startswith(".")
    at_budget = text("ppo.pass@1 at judged_programs:interval")
    assert re.fullmatch(r"\.\d{3} \[\.\d+, [1.]\d*\.?\d+\]", at_budget)
    assert re.fullmatch(r"[+−]\d+ \[−?\d+, −?\d+\]", text("spo-x_1.5-ppo.memory"))


def test_the_page_is_written_again_as_the_fault_says(copy, capsys):
    page = copy / "docs/results/study-s.md"
    planted(page, "4 runs finished", "5 runs finished")
    folder = page.with_suffix("")
    assert write([f"study={folder}/s.yaml", f"folder={folder}", f"out={page}"]) == 0
    status, lines = told(copy, capsys)
    assert (status, lines[-1]) == (0, "faults: 0")


@pytest.mark.parametrize("stale", ["−", "+", "3,", "1"])
def test_a_sign_or_a_digit_before_a_sentence_is_found(stale, copy, capsys):
    (copy / "docs/results/study-s/sentences.yaml").write_text(
        '- {file: README.md, says: "{runs} runs finished"}\n'
    )
    readme = copy / "README.md"
    readme.write_text("4 runs finished\n")
    assert told(copy, capsys)[0] == 0
    readme.write_text(f"{stale}4 runs finished\n")
    assert told(copy, capsys)[0] == 1


def test_a_sentence_that_stands_twice_is_right_twice(copy, capsys):
    readme = copy / "README.md"
    right = readme.read_text()
    readme.write_text(right + right)
    assert told(copy, capsys)[0] == 0
    wrong = re.sub(r"SPO at \.\d+", "SPO at .001", right)
    readme.write_text(right + wrong)
    status, lines = told(copy, capsys)
    assert status == 1
    (fault,) = [line for line in lines if ".001 stands there" in line]
    assert fault.startswith(f"README.md:{right.count(chr(10)) + 4}")


def test_a_packed_study_without_its_counts_is_a_fault(copy, capsys):
    (copy / "docs/results/study-s/counts.parquet").unlink()
    status, lines = told(copy, capsys)
    assert status == 1
    assert any("counts.parquet:1: is not the file of SHA256SUMS" in line for line in lines)


def test_an_option_that_cannot_stand_there_is_an_error_and_zero_has_no_sign(repository):
    numbers = Numbers(Results(repository / "docs/results/study-s")).text
    for wrong in (
        "spo-x_1.5-ppo.pass@1:letters",
        "ppo.area:interval",
        "runs:mean",
        "ppo.x:letters",
    ):
        with pytest.raises(UserError):
            numbers(wrong)
    assert (share(-0.0001), share(-0.2, 0), share(-0.0006)) == (".000", "0", "−.001")
