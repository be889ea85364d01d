# name: as a script: main guard
# input: ""
# ---
if __name__ == '__main__': print(1)
