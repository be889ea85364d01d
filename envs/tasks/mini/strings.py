"""Family of strings: select characters of a word, rewrite them, print the result."""

from __future__ import annotations

import random
from collections.abc import Sequence

from envs.tasks.mini.composition import Code, Family, Part, usable_forms, word

_SELECTIONS = (
    Part("lower", 0, "lowercase", ("@.islower()", "'a'<=@<='z'"), ("@.isupper()", "@<'a'")),
    Part("upper", 0, "uppercase", ("@.isupper()", "'A'<=@<='Z'"), ("@.islower()", "@>'A'")),
    Part("digit", 0, "digits", ("@.isdigit()", "'0'<=@<='9'"), ("@.isalpha()", "@>'0'")),
    Part("letter", 1, "letters", ("@.isalpha()", "not @.isdigit()"), ("@.islower()", "@>'a'")),
    Part("vowel", 1, "lowercase vowels", ("@ in 'aeiou'",), ("@ not in 'aeiou'", "@.islower()")),
    Part(
        "other", 1, "not lowercase vowels", ("@ not in 'aeiou'",), ("@ in 'aeiou'", "@.isalpha()")
    ),
    Part("after_m", 2, "after 'm' in ASCII", ("@>'m'", "ord(@)>109"), ("@>='m'", "@<'m'")),
    Part("not_first", 2, "unlike the first one", ("@!=s[0]",), ("@!=s[-1]", "@==s[0]")),
    Part(
        "once", 2, "occurring once", ("s.count(@)==1", "s.count(@)<2"), ("s.count(@)>1", "@ in s")
    ),
    Part(
        "repeated", 2, "occurring repeatedly", ("s.count(@)>1", "s.count(@)!=1"), ("s.count(@)==1",)
    ),
)
_REWRITES = (
    Part("upper", 0, "uppercase each", ("@.upper()",), ("@.lower()", "@.swapcase()")),
    Part("lower", 0, "lowercase each", ("@.lower()",), ("@.upper()", "@.swapcase()")),
    Part("twice", 0, "double each", ("@*2", "@+@"), ("@", "@*3")),
    Part("swap", 1, "swap each case", ("@.swapcase()",), ("@.upper()", "@.lower()")),
    Part("dash", 1, "put - after each", ("@+'-'", "f'{@}-'"), ("'-'+@", "@")),
    Part("star", 1, "put * before each", ("'*'+@", "f'*{@}'"), ("@+'*'", "@")),
    Part("code", 2, "take each ASCII code", ("str(ord(@))", "f'{ord(@)}'"), ("chr(ord(@)+1)", "@")),
    Part(
        "next",
        2,
        "advance each in ASCII",
        ("chr(ord(@)+1)", "chr(1+ord(@))"),
        ("chr(ord(@)-1)", "str(ord(@))"),
    ),
    Part("brackets", 2, "bracket each by ()", ("'('+@+')'", "f'({@})'"), ("'('+@", "@+')'")),
    Part("thrice", 2, "triple each", ("@*3", "@+@+@"), ("@*2", "@+@")),
)
_OUTPUTS = (
    Part("join", 0, "joined", ("''.join(@)", "*@,sep=''"), ("*@", "''.join(@)[::-1]")),
    Part("reverse", 0, "joined and reversed", ("''.join(@)[::-1]",), ("''.join(@)", "*@[::-1]")),
    Part("sorted", 1, "sorted", ("*sorted(@)", "' '.join(sorted(@))"), ("*@", "*sorted(@)[::-1]")),
    Part(
        "distinct", 1, "as number of distinct", ("len(set(@))", "len({*@})"), ("len(@)", "len(s)")
    ),
    Part(
        "length",
        1,
        "as total length",
        ("len(''.join(@))", "sum(map(len,@))"),
        ("len(s)", "len(set(@))"),
    ),
    Part("largest", 2, "largest only", ("max(@)", "sorted(@)[-1]"), ("min(@)", "sorted(@)[0]")),
    Part(
        "last_two", 2, "last two only", ("*[*@][-2:]", "*list(@)[-2:]"), ("*[*@][:2]", "[*@][-1]")
    ),
    Part(
        "unique",
        2,
        "without repeats",
        ("*dict.fromkeys(@)", "*{}.fromkeys(@)"),
        ("*sorted(set(@))", "*@"),
    ),
    Part("comma", 2, "comma separated", ("','.join(@)", "*@,sep=','"), ("*@", "''.join(@)")),
)
_INLINE = (
    "s={word}\nprint({output:[{rewrite:c} for c in s if {select:c}]})",
    "s={word}\nt=filter(lambda c:{select:c},s)\nprint({output:[{rewrite:c} for c in t]})",
    "s={word}\nt=[c for c in s if {select:c}]\nprint({output:[{rewrite:c} for c in t]})",
)
_NAMED = (
    "s={word}\nt=[{rewrite:c} for c in s if {select:c}]\nprint({output:t})",
    "s={word}\nt=[]\nfor c in s:\n if {select:c}:t.append({rewrite:c})\nprint({output:t})",
    "s={word}\nt=[]\nfor c in s:\n if {select:c}:t+=[{rewrite:c}]\nprint({output:t})",
)


def _forms(codes: dict[str, Code]) -> Sequence[str]:
    return usable_forms(codes, "output", _INLINE, _NAMED)


def _stdin(rng: random.Random, size: int, values: Sequence[int]) -> str:
    return word(rng, size) + "\n"


STRINGS = Family(
    name="strings",
    slots=(("select", _SELECTIONS), ("rewrite", _REWRITES), ("output", _OUTPUTS)),
    statement="Given a word, keep the characters {select}, {rewrite}, print them {output}.",
    forms=_forms,
    stdin=_stdin,
    sample_size=6,
    sizes=(2, 4, 6, 8, 10, 12, 16, 24),
)
