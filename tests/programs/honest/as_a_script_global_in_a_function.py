# name: as a script: global in a function
# input: ""
# ---
n = 0
def f():
 global n
 n += 1
f()
print(n)
