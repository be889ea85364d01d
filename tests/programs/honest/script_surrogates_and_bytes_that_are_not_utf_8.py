# name: script: surrogates and bytes that are not UTF-8
# input: "5\r\n7 8\r\nend\r\n"
# ---
import sys
sys.stdout.buffer.write(b'\xff\xfe\n')
print('\udcff')
