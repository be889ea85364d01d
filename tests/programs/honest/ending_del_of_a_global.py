# name: ending: __del__ of a global
# input: ""
# output: "1\n"
# ---
class Out:
    def __del__(self): print(1)
out = Out()
