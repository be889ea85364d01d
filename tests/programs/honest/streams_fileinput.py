# name: streams: fileinput
# input: "1\n2\n"
# output: "3\n"
# ---
import fileinput
print(sum(int(x) for x in fileinput.input()))
