# name: ending: a file that a signal handler holds
# input: ""
# output: "1\n"
# ---
import signal
out = open(1, 'w')
def handler(*_): out.write('late')
signal.signal(signal.SIGALRM, handler)
out.write('1\n')
