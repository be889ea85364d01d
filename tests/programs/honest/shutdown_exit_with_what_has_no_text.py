# name: shutdown: exit with what has no text
# input: ""
# ---
import sys
class A:
    def __str__(s): 1 / 0
sys.exit(A())
