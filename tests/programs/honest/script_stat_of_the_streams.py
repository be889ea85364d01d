# name: script: stat of the streams
# input: "5\r\n7 8\r\nend\r\n"
# ---
import os, sys
print(os.fstat(0).st_size >= 0, sys.stdin.readable(), sys.stdout.writable(), sys.stderr.fileno(), sys.stdin.encoding)
