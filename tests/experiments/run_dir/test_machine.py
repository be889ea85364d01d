import os
import subprocess
import sys
import time
from ast import literal_eval

from experiments.run_dir.ledger import machine_cpu_s, own_cpu_s
from experiments.run_dir.provenance import hardware, processor


def test_a_run_knows_its_cpu_and_the_instructions_that_its_sums_are_made_with():
    told = "from experiments.run_dir.provenance import hardware; print(hardware())"
    environment = os.environ | {"ATEN_CPU_CAPABILITY": "default"}
    other = subprocess.run(
        [sys.executable, "-c", told], env=environment, capture_output=True, text=True, check=True
    )
    assert literal_eval(other.stdout) == hardware() | {"instructions": "DEFAULT"}
    assert hardware()["cpu"] == processor()


def test_descendants_and_the_whole_machine_are_on_the_clock():
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    clocks = (own_cpu_s, machine_cpu_s)
    before, own = [clock() for clock in clocks], time.process_time()
    subprocess.run([sys.executable, "-c", burn], check=True)
    # Each clock is cut to its tick of 10 ms.
    assert all(clock() - start >= 0.28 for clock, start in zip(clocks, before, strict=True))
    assert time.process_time() - own < 0.28
