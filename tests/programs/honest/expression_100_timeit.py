# name: expression: 100 timeit
# input: ""
# ---
import timeit
print(timeit.timeit("1", number=9) >= 0)
