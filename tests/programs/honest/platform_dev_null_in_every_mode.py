# name: platform: /dev/null in every mode
# input: ""
# output: "0\n"
# ---
import os, sys
for mode in 'w', 'a', 'r+', 'wb': open('/dev/null', mode).close()
os.write(os.open('/dev/null', os.O_RDWR), b'x')
print('lost', file=open(os.devnull, 'w'))
print(len(open('/dev/null').read()))
