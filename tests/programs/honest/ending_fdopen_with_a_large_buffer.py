# name: ending: fdopen with a large buffer
# input: ""
# output: "0\n1\n2\n"
# ---
import os
out = os.fdopen(1, 'wb', 1 << 20)
for i in range(3): out.write(b'%d\n' % i)
