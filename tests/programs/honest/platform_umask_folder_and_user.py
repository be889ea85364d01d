# name: platform: umask, folder and user
# input: ""
# output: "0o22 True True None\n"
# ---
import os
print(oct(os.umask(0)), os.getpid() > 0, os.cpu_count() > 0, os.getenv('X'))
