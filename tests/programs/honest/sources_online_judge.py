# name: sources: ONLINE_JUDGE
# input: "1\n"
# output: "1 True\n"
# ---
import os, sys
if 'ONLINE_JUDGE' not in os.environ: sys.stdin = open('input.txt')
print(input(), bool(os.getenv('ONLINE_JUDGE')))
