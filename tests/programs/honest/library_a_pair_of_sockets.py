# name: library: a pair of sockets
# input: ""
# output: "1 b'hi'\n"
# ---
import select, socket
a, b = socket.socketpair()
a.send(b'hi')
poll = select.epoll()
poll.register(b, select.EPOLLIN)
print(len(poll.poll(1)), b.recv(9))
