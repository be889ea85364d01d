# name: script: the own name
# input: "5\r\n7 8\r\nend\r\n"
# ---
import os, sys
print(os.path.basename(__file__), os.path.isabs(__file__), os.path.dirname(__file__) == os.getcwd())
print(os.listdir(), os.path.exists(sys.argv[0]), os.path.getsize('main.py'), open(sys.argv[0]).read(6))
