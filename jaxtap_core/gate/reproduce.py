"""A finding on disk: the inputs that failed, and a script that runs the failing program on them
alone.

A traced program cannot be pickled, so it is exported (`jax.export`) first: the script needs jax
and NumPy, neither the user's code nor this package. It needs the release of jax that wrote it. A
program that cannot be exported (one with callbacks that return something) is written as text; its
inputs are saved all the same. A program of several devices needs as many again; its inputs are
laid whole on each.
"""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.sharding import AxisType, NamedSharding

from jaxtap_core import _compat
from jaxtap_core.jaxpr.values import host_array
from jaxtap_core.provenance.flat import quiet
from jaxtap_core.records.events import Finding
from jaxtap_core.records.story import tell
from jaxtap_core.telemetry.files import write_atomically


class Evidence:
    """What runs the program of a finding again: its jaxpr and its inputs. Who holds it keeps those inputs alive.

    It belongs to its process: copies of a finding share it, a pickled finding comes without.
    """

    def __init__(self, jaxpr: Any, args: Sequence[Any]) -> None:
        self.jaxpr = jaxpr
        self.args = list(args)

    def save(self, finding: Finding, directory: str) -> str:
        """See `save`."""
        if any(isinstance(arg, jax.Array) and arg.is_deleted() for arg in self.args):
            raise ValueError(
                "the inputs of this finding were donated to the program, so they are gone; "
                "keep them with jaxtap_keep_donated = true"
            )
        return save(finding, self.jaxpr, self.args, directory)

    def __copy__(self) -> Evidence:
        return self

    def __deepcopy__(self, memo: Any) -> Evidence:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()


def save(finding: Finding, jaxpr: Any, args: Sequence[Any], directory: str) -> str:
    """Write the failing inputs and a script that reproduces the finding alone.

    Writes ``reproduce.py``, ``program.bin`` (or ``program.txt`` where it could not be exported),
    ``inputs.npz`` (bytes) and ``finding.json``.

    Args:
        finding: what was found.
        jaxpr, args: the program and the inputs that it failed on.
        directory: folder to write to; made where it does not exist.

    Returns:
        Path of the script.

    Raises:
        NotADirectoryError: `directory` is a file, or lies in one.
    """
    try:
        os.makedirs(directory, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise NotADirectoryError(
            f"finding.save({os.fspath(directory)!r}) writes several files and needs a folder; a file is in the way: "
            "name another folder, which is made where it does not exist"
        ) from None
    with _compat.set_current_trace(_compat.eval_trace):
        program, devices, problem = _exported(jaxpr, args)
        names = _compat.arg_names(jaxpr)
        inputs = [{"name": name, **_describe(arg)} for name, arg in zip(names, args, strict=True)]
        arrays = {f"arg{i}": _bytes(arg) for i, arg in enumerate(args)}
    about = {
        "jax": jax.__version__,
        "x64": bool(jax.config.jax_enable_x64),
        "devices": devices,
        "problem": problem,
        "inputs": inputs,
        "story": tell(finding, verbose=True),
        "finding": finding.to_dict(),
    }

    def write(name: str, content: bytes) -> str:
        path = os.path.join(directory, name)
        write_atomically(path, [content])
        return path

    with open(os.path.join(directory, "inputs.npz"), "wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
    write("finding.json", json.dumps(about, indent=1).encode())
    write("program.bin" if problem is None else "program.txt", program)
    return write("reproduce.py", _SCRIPT.encode())


def _exported(jaxpr: Any, args: Sequence[Any]) -> tuple[bytes, int, str | None]:
    """(the program, how many devices it runs on, why it is only text)."""
    silent = quiet(jaxpr)
    try:
        exported = export.export(jax.jit(_compat.jaxpr_as_fun(silent)))(*map(_like, args))
        return pickle.dumps(_compat.portable(exported)), exported.nr_devices, None
    except Exception as error:  # export refuses programs in many ways, each with its own error
        return str(jaxpr).encode(), 1, f"{type(error).__name__}: {error}"


def _like(arg: Any) -> Any:
    """Its type; on explicit mesh axes the sharding is a part of that."""
    dtype = arg.dtype if hasattr(arg, "dtype") else np.asarray(arg).dtype
    sharding = arg.sharding if isinstance(arg, jax.Array) else None
    explicit = isinstance(sharding, NamedSharding) and AxisType.Explicit in sharding.mesh.axis_types
    return jax.ShapeDtypeStruct(np.shape(arg), dtype, sharding=sharding if explicit else None)


def _describe(arg: Any) -> dict[str, Any]:
    key = hasattr(arg, "dtype") and jnp.issubdtype(arg.dtype, jax.dtypes.prng_key)
    data = host_array(arg)
    float0 = data.dtype == jax.dtypes.float0
    return {
        "shape": list(data.shape),
        "dtype": "float0" if float0 else data.dtype.name,
        "key": str(jax.random.key_impl(arg)) if key else None,
    }


def _bytes(arg: Any) -> np.ndarray:
    return np.frombuffer(np.ascontiguousarray(host_array(arg)).tobytes(), np.uint8)


_SCRIPT = '''"""Runs a failing program on the inputs that it failed on; says which results are bad.

Written by pytest-jaxtap; needs only jax (the release named in finding.json) and NumPy: python
reproduce.py
"""

import json
import pathlib
import pickle
import sys

here = pathlib.Path(__file__).resolve().parent
about = json.loads((here / "finding.json").read_text())

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", about["x64"])


def load(number, kind):
    data = np.load(here / "inputs.npz")[f"arg{number}"]
    if kind["dtype"] == "float0":
        return np.zeros(kind["shape"], jax.dtypes.float0)
    array = data.view(jnp.dtype(kind["dtype"])).reshape(kind["shape"])
    return jax.random.wrap_key_data(array, impl=kind["key"]) if kind["key"] else jnp.asarray(array)


def place(inputs):
    """The program runs on as many devices as it was found on; each gets all of the inputs."""
    needed, devices = about["devices"], jax.devices()
    if needed == 1:
        return inputs
    if len(devices) < needed:
        sys.exit(
            f"the program runs on {needed} devices, and here is {len(devices)}. Give it as many; a CPU is so many with "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={needed} JAX_PLATFORMS=cpu python reproduce.py"
        )
    mesh = jax.sharding.Mesh(np.array(devices[:needed]), ("devices",))
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    return [jax.device_put(x, everywhere) if isinstance(x, jax.Array) else x for x in inputs]


def main():
    print("\\n".join(about["story"]))
    inputs = [load(number, kind) for number, kind in enumerate(about["inputs"])]
    if about["problem"] is not None:
        print("the program could not be exported (" + about["problem"] + "); program.txt shows it")
        return
    if jax.__version__ != about["jax"]:
        print(f"written with jax {about['jax']}, this is {jax.__version__}: it may not load")
    program = pickle.loads((here / "program.bin").read_bytes())
    found = False
    for number, result in enumerate(program.call(*place(inputs))):
        if not jnp.issubdtype(result.dtype, jnp.inexact):
            continue
        for word, test in (("NaN", jnp.isnan), ("Inf", jnp.isinf)):
            bad = np.asarray(test(result))
            if bad.any():
                found = True
                first = [int(k) for k in np.argwhere(bad)[0]]
                count = f"{bad.sum()} of {bad.size} elements"
                print(f"result {number}: {count} are {word}, the first at {first}")
    if not found:
        print("no result is NaN or Inf: what the story tells of stayed inside the program")


if __name__ == "__main__":
    main()
'''
