# name: stdin: open(0)
# input: "1 2"
# ---
print(open(0).read().split())
