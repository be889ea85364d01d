# name: library: faulthandler
# input: ""
# output: "1\n"
# ---
import faulthandler
faulthandler.enable()
print(1)
