# name: expression: 95 textwrap
# input: ""
# ---
import textwrap
print(textwrap.indent("a\nb", "> "), textwrap.fill("aaa bbb", 4))
