# name: expression: 127 builtins
# input: ""
# ---
import builtins
print(len(str(3**9000)), str(2**10000)[:20], int("9" * 4000) % 7, (10**4000 // 7) % 1000)
