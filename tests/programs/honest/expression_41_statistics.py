# name: expression: 41 statistics
# input: ""
# ---
import statistics
print(statistics.median([3, 1, 2]), statistics.pstdev([1, 2, 3, 4]), statistics.mode("aab"), statistics.mean([1, 2]))
