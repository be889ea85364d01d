import gc
import weakref

from analysis.compute import memoize


class Run:
    pass


def test_it_is_found_once_for_each_question_and_goes_with_the_run():
    calls = []

    @memoize
    def answer(run, step):
        calls.append(step)
        return step * 2

    one, other = Run(), Run()
    assert [answer(one, 1), answer(one, 1), answer(one, 2), answer(other, 1)] == [2, 2, 4, 2]
    assert calls == [1, 2, 1]
    reference = weakref.ref(one)
    del one
    gc.collect()
    assert reference() is None
