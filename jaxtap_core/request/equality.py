"""When two lenses do the same on the device: keys by which equal ones find each other's compiled programs.

A function is known by what it does: its code, its defaults, what it closes over, and the globals and attributes that
its code reads, followed through the functions among them. What can be changed in place (lists, dicts, arrays of NumPy,
attributes) counts by its content when it is looked at; what cannot be compared counts by identity.

    >>> def scaled(k):
    ...     return lambda leaves: leaves[0] * k
    >>> key_of(scaled(2)) == key_of(scaled(2)), key_of(scaled(2)) == key_of(scaled(3))
    (True, False)

Keys keep nothing of the user's alive but code and plain values. Sharp edges: an attribute counts if its name stands in
some code that is followed, and all of them where it is read by a name that is made up (``getattr``, ``vars``). Code of
Python, NumPy and JAX is not followed. What is opaque and cannot be referred to weakly is equal to nothing.
"""

from __future__ import annotations

import functools
import hashlib
import marshal
import operator
import struct
import sys
import types
import weakref
from collections import deque, namedtuple
from collections.abc import Hashable, Mapping, Set
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import is_dataclass
from enum import Enum
from typing import Any

import jax
import numpy as np

from jaxtap_core.request.reads import HEAP, class_of_library, file_is_installed, file_of_library, names_of

_PLAIN = frozenset({type(None), bool, int, str, bytes, type(Ellipsis), type(NotImplemented)})
_BASES: tuple[Any, ...] = (int, float, complex, str, bytes)
_NUMBERS = {float: "d", complex: "dd"}
# made of what they are to get, and nothing else
_GETTERS = (operator.itemgetter, operator.attrgetter, operator.methodcaller, type(vars(namedtuple("_", "one"))["one"]))
_DESCRIPTORS = (
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
)
_CONSTRUCTORS = frozenset({"__new__", "__init__", "__post_init__"})
# code that reads attributes whose names do not stand in it
_ALL_READ = frozenset({"getattr", "vars", "__dict__", "asdict", "astuple"})

_REGISTRY = jax.tree_util.default_registry

_SHORT = 64  # items, bytes or characters that stand in a key as they are; of more there is a digest
_FETCHED = 4096  # bytes up to which arrays of JAX, which never change, are compared by content
_MOST_INSTALLED = 32  # functions of installed packages that are followed
_MOST = 100_000  # objects; what holds more is equal to nothing, which costs less than to look at it all


class Identity:
    """Stands for one object, without keeping it alive; equal only to another that stands for the very same object."""

    __slots__ = ("_hash", "object")

    def __init__(self, value: Any) -> None:
        self.object = weakref.ref(value)
        self._hash = id(value)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        mine = self.object()
        return mine is not None and isinstance(other, Identity) and other.object() is mine

    def __hash__(self) -> int:
        return self._hash


def key_of(*values: Any) -> Hashable:
    """A key that is equal to that of other values if the functions among them do the same, and the rest is equal.

    It tells of this moment: what is changed in place later has another key.
    """
    try:
        key = _Writer().write(values)
        hash(key)
    except Exception:  # an object of the user's that cannot be looked at
        return object()
    return key


def identities(key: Hashable) -> list[Any]:
    """The objects that live and that ``key`` knows by identity; when one of them is gone the key has no equal."""
    found = (atom.object() for atom in key if isinstance(atom, Identity)) if isinstance(key, tuple) else ()
    return [value for value in found if value is not None]


class _Writer:
    """Writes values down as a flat sequence of atoms: each object once, and all of them before what they hold."""

    def __init__(self) -> None:
        self._atoms: list[Hashable] = []
        self._todo: deque[Any] = deque()
        self._seen: dict[int, int] = {}
        self._held: list[Any] = []  # what was seen is kept until the end, or another object might take its place
        self._names: set[str] = set()
        # what has attributes, its place in the sequence of objects, and the names that were looked up already
        self._open: list[tuple[Any, int, set[str]]] = []
        self._kinds: dict[type, _Kind] = {}
        self._installed = 0

    def write(self, values: tuple[Any, ...]) -> Hashable:
        self._push(*values)
        while self._todo or self._look_up():
            self._value(self._todo.popleft())
        return tuple(self._atoms)

    def _push(self, *values: Any) -> None:
        self._todo += values

    def _put(self, *atoms: Hashable) -> None:
        self._atoms += atoms

    # -- values

    def _value(self, value: Any) -> None:
        kind: Any = type(value)
        if kind in (str, bytes) and len(value) > _SHORT:
            self._put(kind, _digest(value if kind is bytes else value.encode("utf-8", "surrogatepass")))
        elif kind in _PLAIN:
            self._put(kind, value)
        elif kind in _NUMBERS:
            parts = (value,) if kind is float else (value.real, value.imag)
            self._put(kind, struct.pack(_NUMBERS[kind], *parts))  # NaNs and zeros differ in their bits
        elif isinstance(value, np.ndarray | np.generic):
            self._array(np.asarray(value))
            self._push(getattr(value, "__dict__", None))  # of subclasses, such as the mask of a masked array
        elif isinstance(value, jax.Array):
            self._device_array(value)
        elif (number := self._seen.get(id(value))) is not None:
            self._put("again", number)
        else:
            self._seen[id(value)] = len(self._seen)
            self._held.append(value)
            if len(self._seen) > _MOST:
                raise OverflowError("too much to look at")
            self._object(value, kind)

    def _array(self, array: np.ndarray) -> None:
        self._put("array", array.dtype.str, array.dtype.name, array.shape)
        if array.dtype.hasobject:
            self._push(array.tolist())
        elif array.nbytes <= _SHORT:
            self._put(array.tobytes())
        else:
            self._put(_digest(np.ascontiguousarray(array).reshape(-1).view(np.uint8)))

    def _device_array(self, array: jax.Array) -> None:
        dtype = array.dtype
        plain = not (isinstance(array, jax.core.Tracer) or jax.dtypes.issubdtype(dtype, jax.dtypes.extended))
        if plain and array.nbytes <= _FETCHED and array.is_fully_addressable and not array.is_deleted():
            with jax.transfer_guard("allow"):
                self._array(np.asarray(array))
            self._put("on device", array.weak_type, array.sharding)
        else:
            self._identity(array)

    def _identity(self, value: Any) -> bool:
        try:
            self._put(Identity(value))
        except TypeError:
            return False
        return True

    def _object(self, value: Any, kind: type) -> None:
        """Something that may hold other things."""
        if isinstance(value, types.FunctionType):
            self._function(value)
        elif isinstance(value, types.MethodType):
            self._put("method")
            self._push(value.__func__, value.__self__)
        elif kind is functools.partial:
            self._put("partial")
            self._push(value.func, value.args, value.keywords)
        elif isinstance(value, type):
            self._class(value)
        elif kind is _Kind:
            self._kind(value.cls)
        elif isinstance(value, types.ModuleType):
            self._identity(value)
            self._has_attributes(value)
        elif isinstance(value, types.BuiltinFunctionType | types.MethodWrapperType):
            self._builtin(value)
        elif isinstance(value, staticmethod | classmethod):
            self._put(kind)
            self._push(value.__func__)
        elif isinstance(value, property):
            self._put(kind)
            self._push(value.fget, value.fset)
        elif isinstance(value, functools.cached_property):
            self._put(kind)
            self._push(value.func)
        elif isinstance(value, _GETTERS):
            self._put(kind)
            self._push(*value.__reduce__()[1:])
        elif isinstance(value, ContextVar):
            self._put(kind, value.name)
            self._push(value.get(_UNSET))
        elif isinstance(value, Enum):
            self._put("enum", value.name)
            self._push_kind(kind)
        elif isinstance(value, tuple | list | deque):
            self._items(value, kind)
        elif isinstance(value, Mapping):
            self._mapping(value, kind)
        elif isinstance(value, Set):
            plain = set(map(type, value)) <= _PLAIN
            self._put("set", frozenset(zip(map(type, value), value, strict=True) if plain else map(key_of, value)))
            self._rest(value, kind)
        elif isinstance(value, slice):
            self._put(kind)
            self._push(value.start, value.stop, value.step)
        elif isinstance(value, _DESCRIPTORS):
            self._put("descriptor", value.__name__)
            self._push(value.__objclass__)
        elif isinstance(value, _BASES):
            self._rest(value, kind)
            self._push(*next(base for base in _BASES if isinstance(value, base)).__getnewargs__(value))
        else:
            self._instance(value, kind)

    # -- containers

    def _items(self, items: Any, kind: type) -> None:
        self._put("items", len(items))
        self._rest(items, kind)
        self._many(list(items))

    def _mapping(self, mapping: Mapping[Any, Any], kind: type) -> None:
        pairs = list(mapping.items())
        self._put("mapping", len(pairs))
        self._rest(mapping, kind)
        self._many([one for pair in pairs for one in pair])

    def _many(self, items: list[Any]) -> None:
        if len(items) > _SHORT and set(map(type, items)) <= _PLAIN | {float, complex}:
            self._put(_digest(marshal.dumps(items, 2)))
        else:
            self._push(*items)

    def _rest(self, value: Any, kind: type) -> None:
        """The class of a container, and its attributes where it may have some."""
        if class_of_library(kind):
            self._put(kind)
        else:
            self._push_kind(kind)
            self._has_attributes(value)

    # -- code

    def _function(self, function: types.FunctionType) -> None:
        code = function.__code__
        self._put("function", code)
        held: list[Any] = [function.__defaults__, function.__kwdefaults__]
        for cell in function.__closure__ or ():
            try:
                held.append(cell.cell_contents)
            except ValueError:  # a variable that is not bound yet
                held.append(_UNSET)
        if self._is_foreign(code.co_filename):
            self._put(function.__module__, function.__qualname__)
        else:
            read = _globals_of(function)
            self._put(tuple(read))
            held += read.values()
            self._names.update(names_of(code))
            self._has_attributes(function)
        self._push(*held)

    def _is_foreign(self, file: str) -> bool:
        """Whether code is not followed: of what is installed only the functions that are nearest to the user's are."""
        if file_of_library(file):
            return True
        self._installed += file_is_installed(file)
        return file_is_installed(file) and self._installed > _MOST_INSTALLED

    def _builtin(self, function: Any) -> None:
        owner = function.__self__
        if owner is None or isinstance(owner, types.ModuleType):
            self._put(function)
        else:
            self._put("builtin", function.__name__)
            self._push(owner)

    # -- objects

    def _class(self, cls: type) -> None:
        self._put("class")
        self._push_kind(cls)
        if not class_of_library(cls):
            self._special(cls, _CONSTRUCTORS)

    def _push_kind(self, cls: type) -> None:
        """The class of an object, which does not say that it is called."""
        self._push(self._kinds.setdefault(cls, _Kind(cls)))

    def _kind(self, cls: type) -> None:
        self._put("kind", Identity(cls))
        if not class_of_library(cls):
            self._has_attributes(cls)
            special = {name for base in cls.__mro__ if not class_of_library(base) for name in vars(base)}
            self._special(cls, {name for name in special if name[:2] == name[-2:] == "__"} - _CONSTRUCTORS)

    def _special(self, cls: type, names: Set[str]) -> None:
        """Methods of a class that are called without being named."""
        held = {name: one for name, one in _attributes(cls).items() if name in names}
        methods = {name: one for name, one in held.items() if isinstance(one, types.FunctionType | staticmethod)}
        self._put(tuple(methods))
        self._push(*methods.values())

    def _instance(self, value: Any, kind: type) -> None:
        node = _REGISTRY.flatten_one_level(value)
        # read as a whole, by ``jax.tree`` and the functions of dataclasses; or there is no other way to know it
        whole = node is not None or is_dataclass(value) or kind is types.SimpleNamespace
        self._put("instance")
        if not whole and not self._identity(value):
            whole = _is_plain(kind)
            if not whole:
                self._put(value if _is_constant(value, kind) else object())
        self._push_kind(kind)
        self._push(node, _attributes(value).get("__wrapped__"))
        self._has_attributes(value, whole=whole)

    def _has_attributes(self, value: Any, *, whole: bool = False) -> None:
        if whole:
            attributes = _attributes(value)
            self._put(tuple(attributes))
            self._push(*attributes.values())
        else:
            self._open.append((value, len(self._open), set()))

    def _look_up(self) -> bool:
        """Look up the attributes that code reads, as far as that was not done; says whether there was something."""
        before = len(self._atoms)
        everything = bool(self._names & _ALL_READ)
        for value, number, known in list(self._open):
            new = self._names - known
            if not new:
                continue
            attributes = _attributes(value)
            names = new
            if everything and not isinstance(value, types.ModuleType):
                names = new | {name for name in attributes if name[:2] != "__"}
            found = sorted(name for name in names - known if name in attributes)
            known |= names
            if found:
                self._put("attributes", number, tuple(found))
                self._push(*(attributes[name] for name in found))
        return len(self._atoms) > before


class _Kind:
    """Stands for a class of which there is an object."""

    def __init__(self, cls: type) -> None:
        self.cls = cls


_UNSET = object()


def _digest(data: Any) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _globals_of(function: types.FunctionType) -> dict[str, Any]:
    """The globals that a function reads, and the modules that it imports."""
    around = function.__globals__
    found = {}
    for name in names_of(function.__code__):
        if name in around:
            found[name] = around[name]
        else:
            package = around.get("__package__")
            module = sys.modules.get(name) or (sys.modules.get(f"{package}.{name}") if package else None)
            if module is not None:
                found[name] = module
    return found


def _is_plain(kind: type) -> bool:
    """Whether instances of a class hold nothing but their attributes."""
    return all(base is object or (base.__flags__ & HEAP and not class_of_library(base)) for base in kind.__mro__)


def _is_constant(value: Any, kind: type) -> bool:
    """Whether an object of a library never changes, and holds nothing of the user's: a dtype, a date, ``np.add``."""
    if not class_of_library(kind):
        return False
    if kind is object or kind.__hash__ not in (object.__hash__, None):
        return True
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    return getattr(module, getattr(value, "__name__", ""), None) is value


def _attributes(value: Any) -> dict[str, Any]:
    """The attributes that an object holds itself; of a class also those of its bases.

    Those of its class are found through that: it is looked at, too. Nothing of the user's is called.
    """
    if isinstance(value, types.ModuleType | types.FunctionType):
        return vars(value)
    cls = value if isinstance(value, type) else type(value)
    members = [held for base in reversed(cls.__mro__) if not class_of_library(base) for held in vars(base).items()]
    if cls is value:
        return {name: held for name, held in members if not isinstance(held, _DESCRIPTORS)}
    held = {}
    for slot in (member for _, member in members if isinstance(member, types.MemberDescriptorType)):
        with suppress(AttributeError):  # not set
            held[slot.__name__] = slot.__get__(value)
    with suppress(AttributeError):  # there are only slots
        held.update(object.__getattribute__(value, "__dict__"))
    return held
