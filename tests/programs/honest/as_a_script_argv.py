# name: as a script: argv
# input: ""
# ---
import sys
print(sys.argv)
