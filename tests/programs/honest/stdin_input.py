# name: stdin: input
# input: "1\n2\n"
# ---
print(int(input()) + int(input()))
