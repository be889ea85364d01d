# name: as a script: exit
# input: ""
# ---
print(1)
exit()
print(2)
