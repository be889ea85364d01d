# name: as a script: atexit
# input: ""
# ---
import atexit
atexit.register(print, 'bye')
print('hi')
