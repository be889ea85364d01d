"""The display says what a run does at any moment, and every line stands as it is."""

import io
import time

import pytest
from rich.console import Console

from experiments.run_dir import progress
from experiments.run_dir.progress import Activity, Display

ROW = {"generated_tokens": 640, "reward_mean": 0.25}


def test_brackets_are_text():
    display, told = Display(1), io.StringIO()
    display.console.file = told
    line = "RuntimeError: [/__w/pytorch/pair.cc:553] [bold]peer[/bold] has gone"
    display.say(line)
    assert told.getvalue() == f"{line}\n"


def test_an_activity_counts_what_is_written_judged_and_drawn():
    activity = Activity()
    assert activity.text() == ""
    activity.begin("writing")
    activity.expect(64, "responses")
    activity.advance(37)
    activity.draw(4210)
    activity.judged = range(12)
    activity.since -= 100
    assert activity.text() == "writing 37/64 responses, 4,210 tokens, 42/s · judged 12"
    activity.advance(100)
    assert "64/64" in activity.text()
    activity.begin("judging")
    activity.expect(64, "programs", judged := [None] * 16)  # judged while others were written
    for seconds, left in ((0, ""), (10, ", 50 s left"), (100, ", 9 min left")):
        activity.since -= seconds
        assert activity.text() == f"judging {len(judged)}/64 programs{left}"
        judged += [None] * (8 * (not seconds))


def terminal(width):
    """A display on a terminal of this width, and what it wrote."""
    display, told = Display(40), io.StringIO()
    console = Console(file=told, force_terminal=True, width=width, color_system=None)
    display.console = console
    display.bars = progress.Bars(display.activity, console)
    display.training = display.bars.add_task("training", total=40, note="")
    return display, console


@pytest.mark.parametrize("width", [80, 140])
def test_a_terminal_shows_bar_and_activity_in_whole_lines(width):
    display, console = terminal(width)
    display.evaluated("evaluation", {1: 0.058, 10: 0.242}, None, main=True)
    display.step(3, ROW, seconds=20.0)
    display.activity.begin("writing")
    display.activity.expect(64, "responses")
    lines = shown(display, console)
    assert "3/40" in lines[0] and lines[-1].startswith("writing 0/64 responses")
    assert len(lines) == 2 if width == 140 else len(lines) <= 3
    with display.evaluating("evaluation at step 3", 64):
        display.activity.expect(64, "programs", range(9))
        assert "9/64 judged" in shown(display, console)[1]
    assert "evaluation" not in "".join(shown(display, console))


def shown(display, console):
    with console.capture() as capture:
        for part in display.bars.get_renderables():
            console.print(part)
    return capture.get().rstrip("\n").split("\n")


def test_a_step_without_a_response_shows_its_loss():
    display, _ = terminal(140)
    display.step(3, {"generated_tokens": 0, "reward_mean": float("nan"), "loss": 1.25}, seconds=1.0)
    [task] = display.bars.tasks
    assert task.fields["note"].startswith("loss 1.250") and "reward" not in task.fields["note"]
    display.step(4, {"generated_tokens": 0, "reward_mean": 0.5, "loss": 1.25}, seconds=1.0)
    assert task.fields["note"].startswith("reward 0.500")  # of recorded responses


def test_the_last_line_of_a_log_has_the_score_of_the_last_evaluation():
    display, told = Display(3), io.StringIO()
    display.console.file = told
    for step, score in ((2, 0.375), (3, 0.125)):
        display.step(step, ROW, seconds=20.0)
        display.evaluated("evaluation", {1: score}, None, main=True)
    assert told.getvalue().endswith("step 3/3  reward 0.250  pass@1 0.125  32 tokens/s\n")
    assert told.getvalue().count("step ") == 1


def test_a_log_has_a_line_while_a_step_lasts(monkeypatch):
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.2)
    monkeypatch.setattr(progress, "CHECK_EVERY_S", 0.02)
    display, told = Display(40), io.StringIO()
    display.console.file = told
    with display:
        display.activity.begin("writing")
        display.activity.expect(64, "responses")
        deadline = time.monotonic() + 20
        while not told.getvalue() and time.monotonic() < deadline:
            time.sleep(0.02)
    assert "step 0/40  writing 0/64 responses" in told.getvalue()
    assert not display._thread.is_alive() or display._stopped.is_set()
