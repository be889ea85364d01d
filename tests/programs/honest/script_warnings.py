# name: script: warnings
# input: "5\r\n7 8\r\nend\r\n"
# ---
import warnings
warnings.simplefilter('error')
try: warnings.warn('w', DeprecationWarning)
except DeprecationWarning as e: print(e)
