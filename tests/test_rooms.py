"""Rooms are small enough to be read: CONTRIBUTING.md.

A file of objectives, which `core:` in conf/algo names, counts in no room: it is read alone, and a
new one must not need an older one to move.
"""

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("algorithms", "analysis", "envs", "experiments")
FILES = [file for room in ROOMS for file in (ROOT / room).rglob("*.py")]
CORES = [
    re.search(r"^core: (\S+)\.\w+", file.read_text(), re.MULTILINE).group(1)
    for file in (ROOT / "conf" / "algo").glob("*.yaml")
]
OBJECTIVES = {ROOT / f"{core.replace('.', '/')}.py" for core in CORES}


def test_no_room_has_more_than_15_files_and_no_file_more_than_400_lines():
    assert len(FILES) > 300
    assert len(OBJECTIVES & set(FILES)) >= 10
    counted = set(FILES) - OBJECTIVES
    counts = Counter(file.parent.relative_to(ROOT).as_posix() for file in counted)
    assert {room: count for room, count in counts.items() if count > 15} == {}
    lines = {
        file.relative_to(ROOT).as_posix(): len(file.read_text().splitlines()) for file in FILES
    }
    assert {file: count for file, count in lines.items() if count > 400} == {}
