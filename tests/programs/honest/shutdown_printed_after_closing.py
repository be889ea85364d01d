# name: shutdown: printed after closing
# input: ""
# ---
import sys
print(1)
sys.stdout.close()
print(2)
