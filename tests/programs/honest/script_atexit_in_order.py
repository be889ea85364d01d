# name: script: atexit in order
# input: "5\r\n7 8\r\nend\r\n"
# ---
import atexit
atexit.register(print, 'last'); atexit.register(print, 'first')
print('main')
