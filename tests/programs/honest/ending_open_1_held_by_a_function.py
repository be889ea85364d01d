# name: ending: open(1) held by a function
# input: ""
# output: "1\n"
# ---
out = open(1, 'w')
def put(x): out.write(f'{x}\n')
put(1)
