# name: script: a file of one's own
# input: "5\r\n7 8\r\nend\r\n"
# ---
with open('out.txt', 'w') as f: print(1, 'é', file=f)
with open('out.txt', 'a') as f: f.write('more')
print(open('out.txt').read(), open('out.txt', 'rb').read())
import os
print(os.path.getsize('out.txt'), os.path.isfile('out.txt')); os.remove('out.txt'); print(os.path.exists('out.txt'))
