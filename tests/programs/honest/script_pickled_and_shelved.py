# name: script: pickled and shelved
# input: "5\r\n7 8\r\nend\r\n"
# ---
import pickle
pickle.dump({'a': (1, 2)}, open('p', 'wb'))
print(pickle.load(open('p', 'rb')), pickle.loads(pickle.dumps([1, {2}], 2)))
