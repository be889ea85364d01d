# name: streams: a prompt
# input: "1\n"
# output: "n? 1\n"
# ---
print(input('n? '))
