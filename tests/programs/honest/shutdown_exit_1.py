# name: shutdown: exit -1
# input: ""
# ---
import sys
sys.exit(-1)
