# name: streams: carriage returns printed
# input: ""
# output: "a\rb\r\nc\r"
# ---
print('a\rb\r\nc', end='\r')
