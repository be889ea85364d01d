# name: script: input.txt to output.txt
# input: "5\r\n7 8\r\nend\r\n"
# ---
import sys
open('input.txt', 'w').write('1 2\n')
sys.stdin, out = open('input.txt'), sys.stdout
sys.stdout = open('output.txt', 'w')
print(sum(map(int, input().split())))
sys.stdout.close(); sys.stdout = out
print(open('output.txt').read())
