# name: streams: logging and warnings
# input: ""
# output: "1\n"
# ---
import logging, warnings
logging.basicConfig(level=logging.DEBUG)
logging.debug('x')
warnings.warn('y')
print(1)
