# name: script: a log file
# input: "5\r\n7 8\r\nend\r\n"
# ---
import logging
logging.basicConfig(filename='l.log', level=logging.INFO, format='%(levelname)s %(message)s')
logging.info('hi'); logging.debug('no')
print(open('l.log').read())
