# name: script: a million characters
# input: "5\r\n7 8\r\nend\r\n"
# ---
print('x' * 10**6)
