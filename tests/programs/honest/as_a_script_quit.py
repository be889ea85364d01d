# name: as a script: quit
# input: ""
# ---
print(1)
quit(0)
print(2)
