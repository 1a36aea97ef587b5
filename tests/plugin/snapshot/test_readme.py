"""README's part on snapshots, followed by the letter in an empty folder."""

import inspect
import re
from pathlib import Path

import pytest
from snapshots import FOLDER, files

from pytest_jaxtap.snapshot.snapshot import TapSnapshot

pytest_plugins = ["pytester", "snapshots"]

README = (Path(__file__).parents[3] / "README.md").read_text()
SECTION = README.partition("\n## Snapshots\n")[2].partition("\n## ")[0]
EXAMPLES = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)
COMMANDS = re.findall(r"^    pytest\b(.*?)  +# (\w+)", SECTION, re.MULTILINE)


@pytest.mark.parametrize("example", EXAMPLES, ids=["first", "equinox"])
def test_the_examples_run_as_they_stand(pytester, run, example):
    pytester.makepyfile(test_example=example)
    assert [word for _, word in COMMANDS] == ["fails", "writes", "passes"]
    for options, word in COMMANDS:
        result = run(*options.split(), fresh=True)
        result.assert_outcomes(**{"failed" if word == "fails" else "passed": 1})
    assert [name for name in files(pytester) if name.endswith(".jaxtap")]
    changed = example.replace("0.9", "0.8").replace("key(0)", "key(1)")
    pytester.makepyfile(test_example=changed)
    run(fresh=True).assert_outcomes(failed=1)


def test_the_table_of_arguments_is_complete():
    told = set(re.findall(r"`(\w+)=", SECTION.partition("| argument |")[2].partition("\n\n")[0]))
    assert told == set(inspect.signature(TapSnapshot.__call__).parameters) - {"self", "columns"}
    assert f"`{FOLDER}`" in SECTION


def test_both_examples_were_found():
    assert len(EXAMPLES) == 2 and len(COMMANDS) == 3
