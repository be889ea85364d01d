# name: shutdown: unittest
# input: ""
# ---
import unittest
class T(unittest.TestCase):
    def test(s): pass
unittest.main()
