# name: expression: 33 random
# input: ""
# ---
import random
print((r := random.Random(5), r.sample(range(99), 4), r.shuffle(a := [1, 2, 3, 4]), a, r.gauss(0, 1))[1:])
