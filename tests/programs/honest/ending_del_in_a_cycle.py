# name: ending: __del__ in a cycle
# input: ""
# output: "1\n"
# ---
class Out:
    def __init__(self): self.me = self
    def __del__(self): print(1)
Out()
