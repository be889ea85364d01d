"""How the price of a text grows with its length."""

import time


def growth(act, text_of, length, factor=8):
    """CPU of `act` on a text `factor` times as long, over `factor`: 1 where it is linear, `factor`
    where it is quadratic.

    `text_of(length)` is the text. The least of three passes counts, each over a text a little
    longer, in case `act` remembers; below half a millisecond nothing is measured.
    """
    short, long = (_cpu(act, text_of, n) for n in (length, factor * length))
    return long / max(short, 5e-4) / factor


def repeated(unit, start="", end=""):
    """The text of a length, of so many units, in between start and end."""
    return lambda length: start + unit * (length // len(unit)) + end


def _cpu(act, text_of, length):
    spent = []
    for more in (0, 64, 128):
        text = text_of(length + more)
        begun = time.process_time()
        act(text)
        spent.append(time.process_time() - begun)
    return min(spent)
