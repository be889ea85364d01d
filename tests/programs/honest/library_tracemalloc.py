# name: library: tracemalloc
# input: ""
# output: "True\n"
# ---
import tracemalloc
tracemalloc.start()
x = [0] * 9999
print(tracemalloc.get_traced_memory()[0] > 79992)
