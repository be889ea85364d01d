"""How the price of a text grows with its length."""

import time

MEASURABLE_S, LONGEST_S = 2e-3, 1.0


def growth(act, text_of, longest, factor=8):
    """CPU of `act` on a text `factor` times as long, over `factor`: 1 where it is linear, `factor`
    where it is quadratic.

    `text_of(length)` is the text, at most `longest` characters; the shorter one as short as can be
    measured. Of three passes, each over a text a little longer in case `act` remembers, the least
    counts. One is enough where it takes long, and of the longer text where it is not twice as much
    as linear.
    """
    length = 500
    while (short := _cpu(act, text_of, length, enough=MEASURABLE_S)) < MEASURABLE_S and (
        2 * factor * length <= longest
    ):
        length *= 2
    short = max(short, MEASURABLE_S / 4)
    return _cpu(act, text_of, factor * length, enough=2 * factor * short) / short / factor


def repeated(unit, start="", end=""):
    """The text of a length, of so many units, in between start and end."""
    return lambda length: start + unit * (length // len(unit)) + end


def _cpu(act, text_of, length, enough=0.0):
    """The least CPU of up to three passes; no further one after one of at most `enough`."""
    spent = []
    for more in (0, 64, 128):
        text = text_of(length + more)
        begun = time.process_time()
        act(text)
        spent.append(time.process_time() - begun)
        if spent[-1] <= enough or spent[-1] > LONGEST_S:
            break
    return min(spent)
