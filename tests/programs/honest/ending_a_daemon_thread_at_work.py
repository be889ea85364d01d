# name: ending: a daemon thread at work
# input: ""
# output: "1\n"
# ---
import threading
def work():
    while True: sum(range(100))
threading.Thread(target=work, daemon=True).start()
print(1)
