"""How the price of a text grows with its length."""

import time


def growth(act, text_of, length, factor=8):
    """CPU of `act` on a text `factor` times as long, over `factor`: 1 where it is linear, `factor`
    where it is quadratic.

    `text_of(length)` is the text. The least of three passes counts, each on another text, in case
    `act` remembers; below half a millisecond nothing is measured.
    """
    short, long = (_cpu(act, text_of(n)) for n in (length, factor * length))
    return long / max(short, 5e-4) / factor


def _cpu(act, text):
    spent = []
    for turn in range(3):
        another = text + (str(turn) if isinstance(text, str) else str(turn).encode())
        begun = time.process_time()
        act(another)
        spent.append(time.process_time() - begun)
    return min(spent)
