# name: script: too deep
# input: "5\r\n7 8\r\nend\r\n"
# ---
def f(n): return f(n + 1)
f(0)
