# name: library: an alarm
# input: ""
# output: "late\n"
# ---
import signal
class Late(Exception): pass
def handler(*_): raise Late
signal.signal(signal.SIGALRM, handler)
try:
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    while True: sum(range(100))
except Late:
    print('late')
signal.alarm(9)
