# name: streams: a traceback that was caught
# input: ""
# output: "1\n"
# ---
import traceback
try:
    1 / 0
except ZeroDivisionError:
    traceback.print_exc()
print(1)
