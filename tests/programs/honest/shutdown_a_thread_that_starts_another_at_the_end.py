# name: shutdown: a thread that starts another at the end
# input: ""
# ---
import threading, time
def f(): time.sleep(0.02); threading.Thread(target=print, args=(2,)).start()
threading.Thread(target=f).start()
print(1)
