# name: shutdown: a file in a context variable
# input: ""
# ---
import contextvars
v = contextvars.ContextVar('v')
v.set(open(1, 'w'))
v.get().write('x')
