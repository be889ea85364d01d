# name: script: /dev/fd/1 and /proc/self/fd/1
# input: "5\r\n7 8\r\nend\r\n"
# ---
for name in '/dev/fd/1', '/proc/self/fd/1':
    with open(name, 'w') as f: f.write(name + '\n')
print('end')
