# name: script: the own text
# input: "5\r\n7 8\r\nend\r\n"
# ---
print(len(open(__file__).read()), open(__file__).readline().strip())
