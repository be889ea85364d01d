# name: stdin: non-ASCII
# input: "äöü\n"
# ---
print(input()[::-1])
