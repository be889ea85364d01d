# name: script: atexit after an error
# input: "5\r\n7 8\r\nend\r\n"
# ---
import atexit
atexit.register(print, 'bye')
1 / 0
