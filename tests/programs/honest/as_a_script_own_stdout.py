# name: as a script: own stdout
# input: ""
# ---
import io, sys
sys.stdout = io.StringIO()
print(1)
