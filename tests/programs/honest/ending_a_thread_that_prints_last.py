# name: ending: a thread that prints last
# input: ""
# output: "1\n2\n"
# ---
import threading, time
def work(): time.sleep(0.05); print(2)
threading.Thread(target=work).start()
print(1)
