# name: sources: eval and exec
# input: ""
# output: "3\n2\n"
# ---
x = 1
exec('y = x + 1')
print(eval('x + y'))
exec(compile('print(y)', 'a', 'exec'))
