# name: expression: 32 random
# input: ""
# ---
import random
print(random.seed(1), random.random(), random.randint(1, 100), random.choice("abc"))
