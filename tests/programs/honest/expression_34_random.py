# name: expression: 34 random
# input: ""
# ---
import random
print(random.seed("text"), random.choices([1, 2], [1, 9], k=5), random.getrandbits(70), random.uniform(1, 2))
