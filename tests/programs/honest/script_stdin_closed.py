# name: script: stdin closed
# input: "5\r\n7 8\r\nend\r\n"
# ---
import sys
sys.stdin.close()
try: input()
except ValueError as e: print(e)
