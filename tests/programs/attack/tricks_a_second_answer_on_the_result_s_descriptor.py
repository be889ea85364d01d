# name: tricks: a second answer on the result's descriptor
# tries: to deceive the judge: by what it prints, how it ends, what it leaves behind
# verdicts: WRONG_ANSWER
# function: f
# time_limit: 3.0 s of CPU
# ---
import os
def f(world):
    for fd in range(3, 256):
        try: os.write(fd, b'"HELD" ')
        except OSError: pass
    return 'WRONG'
