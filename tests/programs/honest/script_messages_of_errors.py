# name: script: messages of errors
# input: "5\r\n7 8\r\nend\r\n"
# ---
for f in (lambda: int('x'), lambda: {}[1], lambda: 'a' + 1, lambda: [1][5], lambda: None.x, lambda: 1 / 0, lambda: [].pop(), lambda: float('y'), lambda: max([])):
    try: f()
    except Exception as e: print(type(e).__name__, e)
