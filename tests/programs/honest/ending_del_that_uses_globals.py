# name: ending: __del__ that uses globals
# input: ""
# output: "1 2\n"
# ---
import math
seen = []
class Out:
    def __del__(self): seen.append(1); print(len(seen), math.floor(2.5))
out = Out()
