# name: shutdown: a thread beneath threading
# input: ""
# ---
import _thread, time
_thread.start_new_thread(time.sleep, (9,))
print(1)
