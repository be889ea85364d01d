# name: shutdown: a kind of SystemExit
# input: ""
# ---
class E(SystemExit): pass
raise E(4)
