# name: expression: 55 textwrap
# input: ""
# ---
import textwrap
print(textwrap.wrap("the quick brown fox", 9), textwrap.dedent("  a\n  b"), textwrap.shorten("a b c", 4, placeholder="."))
