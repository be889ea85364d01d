# name: script: /dev/stdout opened by os
# input: "5\r\n7 8\r\nend\r\n"
# ---
import os
print(1, flush=True)
fd = os.open('/dev/stdout', os.O_WRONLY)
os.write(fd, b'2\n'); os.close(fd)
print(3)
