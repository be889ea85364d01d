# name: script: a hundred open devices
# input: "5\r\n7 8\r\nend\r\n"
# ---
fs = [open('/dev/null') for _ in range(150)]
print(len(fs), fs[-1].read())
