# name: shutdown: a file beside stdout
# input: ""
# ---
out = open(1, 'w', closefd=False)
print('a')
print('b', file=out)
def f(): pass
