# name: platform: /dev/fd/0 through os.open
# input: "1\n"
# output: "b'1\\n'\n"
# ---
import os
print(os.read(os.open('/dev/fd/0', os.O_RDONLY), 100))
