# name: ending: stdout through codecs
# input: ""
# output: "é\n"
# ---
import codecs, sys
sys.stdout = codecs.getwriter('utf-8')(sys.stdout.buffer)
print('é')
