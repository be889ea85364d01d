# name: library: readline
# input: "1 2\n"
# output: "3\n"
# ---
import readline

readline.parse_and_bind("tab: complete")
print(sum(map(int, input().split())))
