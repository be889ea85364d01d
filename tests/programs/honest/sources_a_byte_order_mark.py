# name: sources: a byte order mark
# input: ""
# output: "é\n"
# ---
﻿print('é')
