"""The page's figures as files: whole without the page, and with every group in the key."""

import re
import xml.etree.ElementTree as ET

import pytest

from analysis.figures import Axis, Figure, Series, Style, draw_panel, figure_files

SVG = "{http://www.w3.org/2000/svg}"


def figure(labels, panels=3):
    """The groups in each of so many panels, against two axes."""
    series = [Series(label, Style(i), [0, 1], [0.1, 0.5]) for i, label in enumerate(labels)]
    drawn = draw_panel("pass@1", Axis("k", 0, 1), Axis("pass@1", 0, 1), series, "")
    choices = [("steps", [drawn] * panels), ("judged programs", [drawn] * panels)]
    return Figure("learning", "", "", set(labels), choices)


def drawn(labels, drawn_of=None, panels=3):
    """The first file's root, for these groups and one more that the figure does not have."""
    style = {label: Style(i) for i, label in enumerate([*labels, "elsewhere"])}
    files = figure_files(figure(labels, panels), style, drawn_of)
    assert list(files) == ["learning_steps", "learning_judged_programs"]
    return ET.fromstring(files["learning_steps"])


def texts(root):
    return [one.text for one in root.iter(f"{SVG}text")]


def test_every_group_is_in_the_key_and_none_that_is_not_drawn():
    root = drawn(["spo", "ppo lr=3e-05"], (2, 30))
    assert {"spo", "ppo lr=3e-05", "2 of 30 groups"} < set(texts(root))
    assert "elsewhere" not in texts(root)
    assert not any("groups" in text for text in texts(drawn(["spo"])))


@pytest.mark.parametrize("panels", [1, 2, 3, 4])
@pytest.mark.parametrize("labels", [["spo"], [f"group-{i} with a setting={i}" for i in range(12)]])
def test_nothing_lies_outside_nor_on_another(labels, panels):
    root = drawn(labels, panels=panels)
    width, height = (float(root.get(name)) for name in ("width", "height"))
    places = [
        tuple(map(float, re.findall(r"[\d.]+", one.get("transform"))))
        for one in root.findall(f"{SVG}g")
    ]
    assert len(places) == len(set(places)) == panels + len(labels)
    assert all(0 < x < width and 0 < y < height for x, y in places)


def test_a_key_is_as_wide_as_its_label_is_shown():
    labels = ["learning_rate=3e-05 " * 12, "\x1b" * 9, "short"]
    root = drawn(labels, panels=1)
    keys = root.findall(f"{SVG}text")[-3:]
    assert keys[1].text == "⟨U+001B⟩" * 9
    lines = {}
    for key in keys:
        x = float(key.get("x"))
        assert x >= lines.get(key.get("y"), 0), "it begins on the one before"
        lines[key.get("y")] = x + 7 * len(key.text)
    assert max(lines.values()) < float(root.get("width"))


def test_colours_are_written_out():
    style = drawn(["spo"]).find(f"{SVG}style").text
    assert ".g0 { color: #0072b2; }" in style
    assert "var(" not in style


def test_a_hostile_label_is_text():
    label = "</text><script>alert(1)</script>\x1b[2J\u202e&amp;\uffff"
    root = drawn([label])
    assert not list(root.iter(f"{SVG}script"))
    assert "</text><script>alert(1)</script>⟨U+001B⟩[2J⟨U+202E⟩&amp;⟨U+FFFF⟩" in texts(root)
