"""Problems that were made once are read again, the same in every field."""

import pytest

from envs.cache_folder import cache_root
from envs.tasks.mini import task
from envs.tasks.storage import generated_cache


@pytest.fixture(autouse=True)
def cache_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("SPO_BENCH_CACHE", str(tmp_path))


def counted(monkeypatch):
    """How often problems are made."""
    made_of, load = [], task.load

    def counting(*given):
        made_of.append(given)
        return load(*given)

    counting.__module__, counting.__qualname__ = load.__module__, load.__qualname__
    return made_of, counting


def test_what_is_kept_is_what_was_made(monkeypatch):
    calls, load = counted(monkeypatch)
    first, again = (generated_cache.cached_problems("mini-test", load, "test", 9) for _ in range(2))
    assert calls == [("test", 9)]
    assert first == again == task.load("test", 9)
    assert [p.hash for p in again] == [p.hash for p in task.load("test", 9)]
    assert generated_cache.cached_problems("mini-test", load, "test", 6) == task.load("test", 6)
    assert len(calls) == 2


@pytest.mark.parametrize("damage", [lambda b: b"", lambda b: b[: len(b) // 2], lambda b: b"x" * 99])
def test_a_broken_file_is_made_again(monkeypatch, damage):
    calls, load = counted(monkeypatch)
    generated_cache.cached_problems("mini-test", load, "test", 3)
    (file,) = (cache_root() / "made").glob("*.arrow")
    file.write_bytes(damage(file.read_bytes()))
    assert generated_cache.cached_problems("mini-test", load, "test", 3) == task.load("test", 3)
    assert len(calls) == 2


def test_other_code_makes_its_own(monkeypatch):
    calls, load = counted(monkeypatch)
    generated_cache.cached_problems("mini-test", load, "test", 3)
    monkeypatch.setattr(generated_cache, "code_digest", lambda *_: "another")
    generated_cache.cached_problems("mini-test", load, "test", 3)
    assert len(calls) == 2
