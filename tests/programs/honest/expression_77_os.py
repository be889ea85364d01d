# name: expression: 77 os
# input: ""
# ---
import os
print(os.nice(0) >= 0, os.cpu_count() > 0, len(os.urandom(3)), os.path.exists("/nowhere"), os.listdir("."), os.fspath("a"))
