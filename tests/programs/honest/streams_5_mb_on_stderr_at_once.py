# name: streams: 5 MB on stderr at once
# input: ""
# output: "1\n"
# ---
import os, sys
sys.stderr.write('x' * 5_000_000)
os.write(2, b'y')
print(1)
