"""Parts over integers, shared by most families: conditions, maps and reductions."""

from __future__ import annotations

from envs.tasks.mini.composition import Part

_DIGITS = tuple(range(2, 10))

CONDITIONS = (
    Part("even", 0, "even", ("@%2==0", "@%2<1", "not @%2"), ("@%2", "@%2==1")),
    Part("odd", 0, "odd", ("@%2", "@%2==1", "@%2>0"), ("@%2==0", "@%2<1")),
    Part("greater", 0, "greater than #", ("@>#", "#<@"), ("@>=#", "@<#"), _DIGITS),
    Part("less", 0, "less than #", ("@<#", "#>@"), ("@<=#", "@>#"), _DIGITS),
    Part(
        "divisible",
        1,
        "divisible by #",
        ("@%#==0", "@%#<1", "not @%#"),
        ("@%#", "@//#"),
        _DIGITS[1:],
    ),
    Part(
        "indivisible",
        1,
        "not divisible by #",
        ("@%#", "@%#>0", "@%#!=0"),
        ("@%#==0", "@%#==1"),
        _DIGITS[1:],
    ),
    Part("at_least", 1, "at least #", ("@>=#", "#<=@"), ("@>#", "@<=#"), _DIGITS),
    Part("at_most", 1, "at most #", ("@<=#", "#>=@"), ("@<#", "@>=#"), _DIGITS),
    Part("different", 1, "different from #", ("@!=#", "not @==#"), ("@==#", "@>#"), _DIGITS),
    Part(
        "ends_with",
        2,
        "ending in digit #",
        ("@%10==#", "str(@)[-1]=='#'"),
        ("@%#==0", "@//10==#"),
        _DIGITS,
        signed=False,
    ),
    Part(
        "two_digit",
        2,
        "of two digits",
        ("9<@<100", "len(str(@))==2"),
        ("@>10", "9<@"),
        signed=False,
    ),
    Part(
        "odd_digit_sum",
        2,
        "with odd digit sum",
        ("sum(map(int,str(@)))%2", "sum(map(int,str(@)))%2==1"),
        ("@%2", "sum(map(int,str(@)))%2==0"),
        signed=False,
    ),
    Part("remainder", 2, "1 modulo #", ("@%#==1", "(@-1)%#==0"), ("@%#", "@%#==0"), _DIGITS[1:]),
    Part(
        "between",
        2,
        "between # and 20",
        ("#<=@<=20", "@>=# and @<=20"),
        ("#<@<20", "@>#"),
        _DIGITS,
    ),
    Part(
        "palindrome",
        2,
        "palindromic",
        ("str(@)==str(@)[::-1]",),
        ("@==@//10", "str(@)!=str(@)[::-1]"),
        signed=False,
    ),
)

MAPS = (
    Part("square", 0, "square each", ("@*@", "@**2"), ("@*2", "2**@")),
    Part("double", 0, "double each", ("2*@", "@*2", "@+@"), ("@*@", "@**2")),
    Part("add", 0, "add # to each", ("@+#", "#+@"), ("@*#", "@-#"), _DIGITS),
    Part("multiply", 1, "multiply each by #", ("@*#", "#*@"), ("@+#", "@**#"), _DIGITS[1:]),
    Part("subtract", 1, "subtract # from each", ("@-#", "-#+@"), ("#-@", "@+#"), _DIGITS),
    Part("halve", 1, "halve each", ("@//2", "@>>1"), ("@/2", "@%2")),
    Part("modulo", 1, "take each modulo #", ("@%#", "@-@//#*#"), ("@//#", "#%(@+1)"), _DIGITS[1:]),
    Part("cube", 2, "cube each", ("@**3", "@*@*@"), ("@*3", "@**2")),
    Part(
        "digit_sum",
        2,
        "take each digit sum",
        ("sum(map(int,str(@)))", "sum(int(d) for d in str(@))"),
        ("len(str(@))", "@%10"),
        signed=False,
    ),
    Part(
        "distance",
        2,
        "take each distance to #",
        ("abs(@-#)", "max(@-#,#-@)"),
        ("@-#", "#-@"),
        _DIGITS,
    ),
    Part("xor", 2, "xor each with #", ("@^#", "#^@"), ("@|#", "@&#"), _DIGITS),
    Part(
        "last_digit", 2, "take each last digit", ("@%10", "int(str(@)[-1])"), ("@//10", "str(@)[0]")
    ),
    Part("cap", 2, "cap each at #", ("min(@,#)", "min(#,@)"), ("max(@,#)", "@%#"), _DIGITS),
    Part(
        "triangle",
        2,
        "replace each x by 1+2+...+x",
        ("@*(@+1)//2", "sum(range(@+1))"),
        ("sum(range(@))", "@*(@-1)//2"),
        signed=False,
    ),
)

# What is taken of a whole list; a printed answer may also be several values.
VALUES = (
    Part("sum", 0, "sum", ("sum(@)",), ("max(@)", "len(@)")),
    Part("maximum", 0, "maximum", ("max(@)", "sorted(@)[-1]"), ("min(@)", "sorted(@)[0]")),
    Part("minimum", 1, "minimum", ("min(@)", "sorted(@)[0]"), ("max(@)", "sorted(@)[-1]")),
    Part(
        "distinct",
        1,
        "number of distinct values",
        ("len(set(@))", "len({*@})"),
        ("len(@)", "sum(set(@))"),
    ),
    Part("last", 1, "last one", ("[*@][-1]", "list(@)[-1]"), ("[*@][0]", "max(@)")),
    Part(
        "range",
        1,
        "maximum minus minimum",
        ("max(@)-min(@)", "sorted(@)[-1]-sorted(@)[0]"),
        ("max(@)", "min(@)-max(@)"),
    ),
    Part(
        "second",
        2,
        "second largest",
        ("sorted(@)[-2]", "sorted(@)[::-1][1]"),
        ("sorted(@)[1]", "sorted(@)[-1]"),
    ),
    Part(
        "top_two",
        2,
        "sum of the two largest",
        ("sum(sorted(@)[-2:])", "sum(sorted(@)[::-1][:2])"),
        ("sum(sorted(@)[:2])", "sorted(@)[-2]"),
    ),
    Part(
        "ends",
        2,
        "sum of first and last",
        ("[*@][0]+[*@][-1]", "[*@][-1]+[*@][0]"),
        ("[*@][-1]", "sum([*@][1:-1])"),
    ),
    Part(
        "ties",
        2,
        "number of maxima",
        ("[*@].count(max(@))", "list(@).count(max(@))"),
        ("max(@)", "len(@)"),
    ),
)

LISTINGS = (
    Part("count", 0, "count", ("len(@)", "len([*@])"), ("sum(@)", "max(@)")),
    Part("reverse", 1, "list reversed", ("*[*@][::-1]", "*reversed(@)"), ("*@", "*sorted(@)")),
    Part("sorted", 1, "list sorted", ("*sorted(@)",), ("*@", "*sorted(@)[::-1]")),
    Part(
        "descending",
        2,
        "list from high to low",
        ("*sorted(@)[::-1]", "*sorted(@,reverse=1)"),
        ("*sorted(@)", "*[*@][::-1]"),
    ),
    Part(
        "every_second",
        2,
        "every second one",
        ("*[*@][::2]", "*list(@)[::2]"),
        ("*[*@][1::2]", "*[*@][:2]"),
    ),
)

SIGNED_CONDITIONS = tuple(part for part in CONDITIONS if part.signed)
