# name: streams: input until the end
# input: "1\n2\n3"
# output: "6\n"
# ---
n = 0
while True:
    try:
        n += int(input())
    except EOFError:
        break
print(n)
