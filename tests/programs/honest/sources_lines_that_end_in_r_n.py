# name: sources: lines that end in \r\n
# input: ""
# output: "3\n"
# ---
x = '''a
b'''
print(len(x))

