# name: shutdown: the order of __del__
# input: ""
# ---
class A:
    def __init__(s, n): s.n = n
    def __del__(s): print(s.n)
a = A(1)
b = [A(2), A(3)]
_c = A(4)
