# name: ending: stdout detached
# input: ""
# output: "é\n"
# ---
import io, sys
sys.stdout = io.TextIOWrapper(sys.stdout.detach(), 'utf-8')
print('é')
