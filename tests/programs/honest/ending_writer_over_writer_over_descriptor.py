# name: ending: writer over writer over descriptor
# input: ""
# output: "1\n"
# ---
import io
class Out:
    def __init__(self):
        self.raw = io.BufferedWriter(io.FileIO(1, 'w'))
        self.text = io.TextIOWrapper(self.raw)
Out().text.write('1\n')
