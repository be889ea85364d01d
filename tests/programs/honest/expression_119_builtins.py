# name: expression: 119 builtins
# input: ""
# ---
import builtins
print("a,b,,c".split(","), " a  b ".split(), "abc".partition("b"), "aXbX".rsplit("X", 1), "a\nb\r\nc".splitlines())
