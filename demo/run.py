"""The main job on real programs: watch a sampler adapt, then let the gate find the bugs in ``demo/test_*.py``.

Run: python demo/run.py      (or `make demo`, which makes its environment first)

Every test in this folder holds a real bug; the demonstration has succeeded when the gate catches each of them.
"""

import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).parent


def main() -> int:
    print("== BlackJAX's window adaptation, step by step\n", flush=True)
    subprocess.run([sys.executable, str(HERE / "stream_adaptation.py")], check=True)
    tests = sorted(HERE.glob("test_*.py"))
    print(f"\n== {len(tests)} programs with a bug each, under: pytest --jaxtap-nan demo\n", flush=True)
    command = [sys.executable, "-m", "pytest", "--jaxtap-nan", "-q", "-p", "no:cacheprovider", str(HERE)]
    run = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    print(run.stdout)
    caught = len(re.findall(r"^jaxtap: ", run.stdout, re.MULTILINE))
    if caught < len(tests):
        print(f"the gate caught {caught} of {len(tests)} bugs")
        return 1
    print(f"the gate caught all {len(tests)} bugs: each failure above is what this demonstration is for")
    return 0


if __name__ == "__main__":
    sys.exit(main())
