import os
import subprocess
import sys
import time
from ast import literal_eval

import pytest

from experiments.run_dir.machine import hardware, machine_cpu_s, own_cpu_s, processor

EPYC = """\
processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 1
model name\t: AMD EPYC
flags\t\t: fpu avx2

processor\t: 1
model name\t: another: one
"""


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        (EPYC, "AMD EPYC, family 25, model 1"),
        ("model name\t: Intel(R) Xeon(R) @ 2.20GHz\n", "Intel(R) Xeon(R) @ 2.20GHz"),
    ],
)
def test_the_cpu_is_told_from_others_of_its_name(tmp_path, lines, name):
    (tmp_path / "cpuinfo").write_text(lines)
    assert processor(tmp_path / "cpuinfo") == name


def test_no_cpuinfo_and_one_without_names_are_no_error(tmp_path):
    assert isinstance(processor(tmp_path / "none"), str)
    (tmp_path / "cpuinfo").write_text("CPU implementer\t: 0x41\n\n")
    assert isinstance(processor(tmp_path / "cpuinfo"), str)


def test_a_run_knows_its_cpu_and_the_instructions_that_its_sums_are_made_with():
    told = "from experiments.run_dir.machine import hardware; print(hardware())"
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
