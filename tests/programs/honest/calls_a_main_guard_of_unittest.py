# name: calls: a main guard of unittest
# function: f
# input: [2]
# output: 3
# ---
import unittest
def f(a): return a + 1
class Test(unittest.TestCase):
    def test(self): self.assertEqual(f(1), 2)
if __name__ == '__main__': unittest.main()
