# name: script: signals to a thread, blocked, awaited
# input: "5\r\n7 8\r\nend\r\n"
# ---
import signal, threading
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
print(signal.sigpending())
print(signal.sigwait([signal.SIGUSR1]))
