# name: sources: import __main__
# input: ""
# output: "1 True\n"
# ---
import __main__, sys
x = 1
print(__main__.x, sys.modules[__name__] is __main__)
