# name: expression: 79 os
# input: ""
# ---
import os
print(os.path.basename(os.path.abspath("main.py")), os.isatty(1), os.strerror(2), os.getppid() >= 0, os.times().user >= 0)
