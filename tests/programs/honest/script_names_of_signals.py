# name: script: names of signals
# input: "5\r\n7 8\r\nend\r\n"
# ---
import signal
print(signal.Signals(9).name, signal.SIGINT, signal.strsignal(15), signal.getsignal(signal.SIGTERM))
print(signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGPIPE))
