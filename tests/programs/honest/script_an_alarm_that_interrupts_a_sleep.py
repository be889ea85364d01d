# name: script: an alarm that interrupts a sleep
# input: "5\r\n7 8\r\nend\r\n"
# ---
import signal, time
class Late(Exception): pass
def late(*a): raise Late
signal.signal(signal.SIGALRM, late)
signal.setitimer(signal.ITIMER_REAL, .02)
try: time.sleep(5)
except Late: print('late')
