# name: script: /dev/stdout after print
# input: "5\r\n7 8\r\nend\r\n"
# ---
print(1)
open('/dev/stdout', 'w').write('2\n')
print(3)
