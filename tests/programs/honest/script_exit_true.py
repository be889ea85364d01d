# name: script: exit True
# input: "5\r\n7 8\r\nend\r\n"
# ---
import sys
print(1); sys.exit(True)
