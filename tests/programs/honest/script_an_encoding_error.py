# name: script: an encoding error
# input: "5\r\n7 8\r\nend\r\n"
# ---
print('a', flush=True)
print('é'.encode('ascii'))
