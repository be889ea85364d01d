# name: expression: 76 os
# input: ""
# ---
import os
print(os.getenv("NO"), os.path.join("a", "b"), os.path.splitext("a.py"), os.sep, os.linesep, os.name, os.getpid() > 0)
