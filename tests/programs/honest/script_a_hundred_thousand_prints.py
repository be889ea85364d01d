# name: script: a hundred thousand prints
# input: "5\r\n7 8\r\nend\r\n"
# ---
for i in range(20000): print(i, end=' ')
