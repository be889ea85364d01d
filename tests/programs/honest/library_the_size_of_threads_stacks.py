# name: library: the size of threads' stacks
# input: ""
# output: "0 67108864 0\ntoo small\n"
# ---
import threading
print(threading.stack_size(1 << 26), threading.stack_size(), threading.stack_size())
try:
    threading.stack_size(1)
except ValueError:
    print('too small')
