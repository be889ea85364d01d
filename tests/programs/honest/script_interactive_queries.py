# name: script: interactive queries
# input: "5\r\n7 8\r\nend\r\n"
# ---
n = 7
lo, hi = 1, 8
while lo < hi:
    m = (lo + hi) // 2
    print('?', m, flush=True)
    lo, hi = (m + 1, hi) if m < n else (lo, m)
print('!', lo)
