# name: script: write, writelines, buffer
# input: "5\r\n7 8\r\nend\r\n"
# ---
import sys
print(sys.stdout.write('ab\n'))
sys.stdout.flush()
sys.stdout.buffer.write(b'cd\n')
sys.stdout.writelines(['e', 'f\n'])
