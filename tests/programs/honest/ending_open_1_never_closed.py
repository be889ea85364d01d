# name: ending: open(1) never closed
# input: ""
# output: "1\n"
# ---
out = open(1, 'w')
out.write('1\n')
