# name: shutdown: its names cleared
# input: ""
# ---
print(1)
globals().clear()
