# name: script: an uncaught exception
# input: "5\r\n7 8\r\nend\r\n"
# ---
print(1)
[][1]
