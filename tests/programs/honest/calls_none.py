# name: calls: none
# function: f
# input: []
# output: null
# ---
def f(): pass
