# name: expression: 92 sched
# input: ""
# ---
import sched
print((s := sched.scheduler(), s.enter(0, 1, print, ("ran",)), s.run())[2])
