# name: expression: 83 shlex
# input: ""
# ---
import shlex
print(shlex.split("a 'b c' d"), shlex.quote("a b"))
