
import os
os.makedirs("a/b")
open("a/b/left", "w").write("left")
os.umask(0o777)
os.mkdir("closed")
import time
time.sleep(float(input()))
