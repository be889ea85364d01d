# name: shutdown: exit at the least long
# input: ""
# ---
import sys
print(1)
sys.exit(-2**63)
