# name: expression: 74 sys
# input: ""
# ---
import sys
print(sys._getframe().f_back, sys._getframe().f_code.co_name, sys.getdefaultencoding(), sys.flags.utf8_mode >= 0)
