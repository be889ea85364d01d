# name: expression: 8 itertools
# input: ""
# ---
import itertools
print([*itertools.islice(itertools.cycle("ab"), 5)], [*itertools.chain.from_iterable([[1], [2]])])
