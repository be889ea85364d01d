# name: expression: 13 collections
# input: ""
# ---
import collections
print(collections.Counter("abracadabra").most_common(2), collections.Counter(a=3) - collections.Counter(a=1))
