# name: script: too deep, caught
# input: "5\r\n7 8\r\nend\r\n"
# ---
def f(n):
    try: return f(n + 1)
    except RecursionError: return n > 900
print(f(0))
