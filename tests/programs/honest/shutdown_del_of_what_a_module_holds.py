# name: shutdown: __del__ of what a module holds
# input: ""
# ---
class A:
    def __init__(s, n): s.n = n
    def __del__(s): print(s.n)
import math
math.a = A(1)
