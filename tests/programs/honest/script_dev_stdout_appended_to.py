# name: script: /dev/stdout appended to
# input: "5\r\n7 8\r\nend\r\n"
# ---
print(1, flush=True)
print(2, file=open('/dev/stdout', 'a'), flush=True)
print(3)
