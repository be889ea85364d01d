# name: script: print flush, sep, end, file
# input: "5\r\n7 8\r\nend\r\n"
# ---
import sys
print(1, 2, sep='-', end='!\n', flush=True)
print('x', file=sys.stderr)
print(*range(3), sep='\n')
print()
