"""What people are told stands there as it is."""

import io

from experiments.run_dir.progress import Display


def test_brackets_are_text():
    display, told = Display(1, "job 1: "), io.StringIO()
    display.console.file = told
    line = "RuntimeError: [/__w/pytorch/pair.cc:553] [bold]peer[/bold] has gone"
    display.say(line)
    assert told.getvalue() == f"job 1: {line}\n"
