# name: streams: /dev/stdin and /dev/stdout
# input: "1\n"
# output: "2\n"
# ---
print(int(open('/dev/stdin').read()) + 1, file=open('/dev/stdout', 'w'))
