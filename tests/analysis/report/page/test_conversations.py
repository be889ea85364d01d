"""Conversations on the page: the tables turn by turn, and the explorer in a real browser."""

import re

import pandas as pd
import pytest

from analysis.experiment import build_experiment
from analysis.report import main
from analysis.runs import load_run
from analysis.samples import explorer_data
from tests.analysis.conversations import add_conversations, conversation
from tests.analysis.report.page.attacks import ATTACK
from tests.analysis.report.page.conftest import opened

PROBLEM = "mini/test/0000"
REPEATED = "mini/test/0001"
MENDED = ("print(int(input()))", "print(int(input()) + 1)")
SAID = f"Your program failed sample 1.\n</script><script>window.attacked = 2</script>\n{ATTACK}"
HEADINGS = "Solve rates", "What later answers change"


def plant(folder):
    """Plant conversations after training: of one problem one that is mended, and a hostile one.

    Of another problem one whose first answer has no program, and whose last is the second again.
    """
    evals = pd.read_parquet(folder / "evals.parquet")
    again = ["", "print(7)", "print(7)"]
    stuck = (evals["problem"] == REPEATED) & (evals["step"] == 20)
    rest = {"entropy": 0.5, "difficulty": "easy", "problem": REPEATED}
    stuck_rows = [
        conversation("sww", "sww", again, [3, 4, 4], sample=i, **rest) for i in range(stuck.sum())
    ]
    evals = pd.concat([evals[~stuck], pd.DataFrame(stuck_rows)])
    there = (evals["problem"] == PROBLEM) & (evals["step"] == 20)
    texts = {"entropy": 0.5, "difficulty": "easy", "problem": PROBLEM}
    rows = [
        conversation("wR", "wR", MENDED, [6, 8], [SAID], sample=i, **texts)
        for i in range(there.sum() - 1)
    ]
    rows.append(conversation("w", "R", [ATTACK], [9], sample=len(rows), **texts))
    pd.concat([evals[~there], pd.DataFrame(rows)]).to_parquet(folder / "evals.parquet")
    asked = [{"problem": name, "prompt": f"Solve {name}."} for name in evals["problem"].unique()]
    pd.DataFrame(asked).to_parquet(folder / "problems.parquet")


def make_report(root, make_run):
    """Write the report of a group with conversations and of one without; return its folder."""
    sizes = {"problems": 4, "samples": 6, "every": 20}
    make_run(root / "outputs", "ppo", 0, **sizes)
    plant(add_conversations(make_run(root / "outputs", "spo", 0, **sizes)))
    assert main([f"runs={root}/outputs", f"out={root}/report"]) == 0
    return root / "report"


@pytest.fixture(scope="module")
def report(tmp_path_factory, make_run):
    return make_report(tmp_path_factory.mktemp("turns"), make_run)


@pytest.fixture(scope="module")
def talk_page(browser, report):
    with opened(browser, report / "report.html") as page:
        yield page


def open_problem(page, address=f"#problem={PROBLEM}&arm=spo&sample=1"):
    page.evaluate("address => { location.hash = ''; location.hash = address; }", address)
    page.wait_for_timeout(100)
    return page.locator(".explorer .form.chosen")


def test_the_report_has_the_tables_and_the_page_shows_them(report):
    table = pd.read_csv(report / "turns.csv")
    assert set(table["label"]) == {"base", "base eval.turns=3", "ppo", "spo"}
    results = pd.read_csv(report / "table.csv").set_index("label")
    last = table[table["metric"] == "solved_in_3"].set_index("label")["mean"]
    assert last["spo"] == pytest.approx(results.loc["spo", "pass@1"])
    assert len(pd.read_csv(report / "turn_differences.csv"))
    curve = pd.read_csv(report / "turn_curve.csv")
    assert curve.groupby("label")["turn"].nunique().to_dict() == {"ppo": 1, "spo": 3}
    written = (report / "table.md").read_text()
    page = (report / "report.html").read_text()
    assert all(heading in written and heading in page for heading in HEADINGS)
    assert (report / "figures" / "compare" / "turns_steps.svg").is_file()


def test_without_conversations_nothing_of_them_is_written(report, tmp_path, make_run):
    for file in report.glob("turn*"):  # an earlier report there had them
        (tmp_path / file.name).write_bytes(file.read_bytes())
    make_run(tmp_path / "outputs", "spo", 0, problems=3, samples=5, every=20)
    assert main([f"runs={tmp_path}/outputs", f"out={tmp_path}"]) == 0
    assert list(tmp_path.glob("turn*")) == []
    assert "Turn by turn" not in (tmp_path / "report.html").read_text()
    assert "Turn by turn" not in (tmp_path / "table.md").read_text()


def test_a_single_run_has_its_turns_and_every_table_that_the_page_links(tmp_path, make_run):
    run = make_run(tmp_path / "outputs", "spo", 0, problems=3, samples=5, every=20)
    assert main([f"runs={add_conversations(run)}", f"out={tmp_path}/report"]) == 0
    assert len(pd.read_csv(tmp_path / "report" / "turns.csv"))
    page = (tmp_path / "report" / "report.html").read_text()
    links = set(re.findall(r'href="(\w+\.csv)"', page))
    assert "turn_differences.csv" in links
    assert all((tmp_path / "report" / link).is_file() for link in links)


def test_the_explorer_has_every_answer_of_a_conversation(report):
    runs = [load_run(path) for path in sorted((report.parent / "outputs").glob("*/*"))]
    data, _ = explorer_data(build_experiment("compare", runs))
    mended = [
        [MENDED[0], "WRONG_ANSWER", "WRONG_ANSWER", SAID],
        [MENDED[1], "ACCEPTED", "ACCEPTED", ""],
    ]
    place = data["conversations"].index(mended)
    assert data["programs"][place] == MENDED[1]
    singles = [i for i, answers in enumerate(data["conversations"]) if not answers]
    assert singles and place not in singles
    (cell,) = [p["cells"] for p in data["problems"] if p["name"] == PROBLEM]
    right = 2 + data["verdicts"].index("ACCEPTED")
    assert [row[right] for key in cell for row in cell[key] if row[1] == place] == [5]


def test_a_conversation_is_read_answer_by_answer(talk_page):
    form = open_problem(talk_page)
    answers = form.locator(".conversation > li")
    assert answers.count() == 2
    assert answers.nth(0).locator(".verdict").all_inner_texts() == [
        "public: wrong answer",
        "hidden: wrong answer",
    ]
    assert answers.nth(1).locator(".verdict.accepted").count() == 2
    assert [pre.inner_text() for pre in answers.locator("pre:not(.observation)").all()] == [*MENDED]
    assert "5 × accepted" in form.locator("> header").inner_text()
    box = talk_page.locator(".explorer")
    answers.nth(0).get_by_role("button", name="A").click()
    answers.nth(1).get_by_role("button", name="B").click()
    titles = box.locator(".compare h5").all_inner_texts()
    assert [title.partition(": ")[2] for title in titles] == [
        "spo, form 1, answer 1",
        "spo, form 1",
    ]
    assert box.locator(".compare .come").inner_text().strip() == MENDED[1]
    assert talk_page.seen == []


def test_an_answer_without_a_program_and_one_that_repeats_a_program_say_so(talk_page):
    answers = open_problem(talk_page, f"#problem={REPEATED}&arm=spo").locator(".conversation > li")
    heads = [" ".join(head.inner_text().split()) for head in answers.locator("header").all()]
    assert heads[0] == "answer 1 of 3 no program (syntax error)"
    assert heads[1] == "answer 2 of 3 public: wrong answer hidden: wrong answer A B"
    again = "the program of answer 2 again A B"
    assert heads[2] == f"answer 3 of 3 public: wrong answer hidden: wrong answer {again}"
    assert answers.nth(0).locator("pre:not(.observation)").count() == 0


def test_a_hostile_observation_is_text(talk_page):
    observation = open_problem(talk_page).locator(".observation")
    said = observation.inner_text()
    for part in ("</script><script>window.attacked = 2</script>", "<img src=x", "U+001B", "U+202E"):
        assert part in said
    assert talk_page.evaluate("window.attacked") is None
    assert talk_page.evaluate("document.querySelectorAll('img, iframe, script[src]').length") == 0
    assert talk_page.seen == []


def test_addresses_lead_to_a_conversation_and_to_a_single_program(talk_page):
    form = open_problem(talk_page)
    assert form.locator("strong").first.inner_text().startswith("form 1")
    single = open_problem(talk_page, f"#problem={PROBLEM}&arm=ppo")
    assert single.locator(".conversation").count() == 0 and single.locator("> pre").count() == 1


def test_a_narrow_screen_holds_conversations_and_tables(talk_page):
    talk_page.set_viewport_size({"width": 390, "height": 844})
    form = open_problem(talk_page)
    assert talk_page.evaluate("document.documentElement.scrollWidth") == 390
    for pair in form.locator(".pair").all():
        left, right = (button.bounding_box() for button in pair.get_by_role("button").all())
        assert left["y"] == right["y"]
    talk_page.set_viewport_size({"width": 1280, "height": 900})
