# name: script: os._exit without a flush
# input: "5\r\n7 8\r\nend\r\n"
# ---
import os
print(1); os._exit(0)
