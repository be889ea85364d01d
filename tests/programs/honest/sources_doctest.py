# name: sources: doctest
# input: ""
# output: "TestResults(failed=0, attempted=1)\n"
# ---
import doctest
def f(x):
    '''
    >>> f(1)
    2
    '''
    return x + 1
print(doctest.testmod())
