
import fcntl, os
def f(leave):
    flags = fcntl.fcntl(1, fcntl.F_GETFL)
    if leave:
        fcntl.fcntl(1, fcntl.F_SETFL, flags | os.O_NONBLOCK | os.O_APPEND)
    return flags
