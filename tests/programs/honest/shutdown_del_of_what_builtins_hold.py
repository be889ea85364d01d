# name: shutdown: __del__ of what builtins hold
# input: ""
# ---
class A:
    def __init__(s, n): s.n = n
    def __del__(s): print(s.n)
import builtins
builtins.a = A(1)
