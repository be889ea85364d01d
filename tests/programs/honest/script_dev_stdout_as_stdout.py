# name: script: /dev/stdout as stdout
# input: "5\r\n7 8\r\nend\r\n"
# ---
import sys
print(0)
sys.stdout.flush()
sys.stdout = open('/dev/stdout', 'w', buffering=1)
print(1)
