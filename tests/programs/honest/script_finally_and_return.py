# name: script: finally and return
# input: "5\r\n7 8\r\nend\r\n"
# ---
def f():
    try: return 1
    finally: print('finally')
print(f())
for i in range(3):
    try: continue
    finally: print(i)
