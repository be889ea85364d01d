
import os
for name in os.listdir("/stdio") + ["program"]:
    try:
        with open(f"/stdio/{name}", "r+b") as file:
            print(name, file.read())
            file.write(b"left")
    except FileNotFoundError:
        pass
for number in range(9):
    try:
        open(f"/stdio/{number}", "x")
        print("made", number)
    except OSError:
        pass
print(sorted(os.listdir("/stdio")))
