# name: script: os.abort
# input: "5\r\n7 8\r\nend\r\n"
# ---
import os
print(1, flush=True); os.abort()
