"""The part of a torch checkpoint that names its tensors, read without executing any of it.

A pickle is a program. This one is not run: its operations are walked over by a small stack machine that knows dictionaries, lists,
tuples, numbers, text, and the few globals with which torch rebuilds a tensor from a storage. Anything else is refused by name, so a
file that would run code when loaded says what it would have called.
"""

import pickletools
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from .tensors import BITS, TensorFileError

MOST_STEPS = 5_000_000
_TENSOR = "torch._utils._rebuild_tensor_v2"
_PLAIN_TENSOR = "torch._utils._rebuild_tensor"
_TYPED_TENSOR = "torch._utils._rebuild_tensor_v3"
_PARAMETER = "torch._utils._rebuild_parameter"
_PARAMETER_STATE = "torch._utils._rebuild_parameter_with_state"
_KNOWN = frozenset((_TENSOR, _PLAIN_TENSOR, _TYPED_TENSOR, _PARAMETER, _PARAMETER_STATE, "collections.OrderedDict", "torch.Size"))
STORAGES = {
    "Double": "float64", "Float": "float32", "Half": "float16", "BFloat16": "bfloat16", "Long": "int64", "Int": "int32", "Short": "int16",
    "Char": "int8", "Byte": "uint8", "Bool": "bool", "ComplexFloat": "complex64", "ComplexDouble": "complex128",
    "Float8_e4m3fn": "float8_e4m3fn", "Float8_e5m2": "float8_e5m2", "UInt16": "uint16", "UInt32": "uint32", "UInt64": "uint64",
}  # fmt: skip


class Global(NamedTuple):
    """A name that the pickle would import."""

    name: str


class Storage(NamedTuple):
    """Bytes of the archive: record `data/<key>`. `dtype` is "" where each tensor names its own."""

    dtype: str
    key: str
    elements: int


class View(NamedTuple):
    """A tensor as the pickle describes it: offset and strides in elements of its storage."""

    storage: Storage
    offset: int
    shape: Tuple[int, ...]
    stride: Tuple[int, ...]
    dtype: str


def read_pickle(data: bytes) -> Any:
    """The object that the pickle describes, tensors as `View`. Raises TensorFileError."""
    machine = _Machine()
    try:
        for count, (op, arg, _) in enumerate(pickletools.genops(data)):
            if count > MOST_STEPS:
                raise TensorFileError("unsupported", "its pickle has more than %d operations" % MOST_STEPS)
            act = _ACTS.get(op.name)
            if act is None:
                raise TensorFileError("unsupported", "its pickle uses `%s`, which no saved tensors need" % op.name)
            act(machine, arg)
    except TensorFileError:
        raise
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError, OverflowError, MemoryError) as error:
        raise TensorFileError("damaged", "its pickle cannot be read: %s" % (str(error)[:200] or type(error).__name__)) from error
    if machine.result is None:
        raise TensorFileError("truncated", "its pickle ends before its last operation")
    return machine.result[0]


class _Machine:
    """Stack, marks and memo of a pickle, of plain data only."""

    def __init__(self) -> None:
        self.stack: List[Any] = []
        self.marks: List[int] = []
        self.memo: Dict[int, Any] = {}
        self.result: Any = None

    def since_mark(self) -> List[Any]:
        at = self.marks.pop()
        items = self.stack[at:]
        del self.stack[at:]
        return items

    def reduce(self, called: Any, args: Any) -> Any:
        """What the call would give, for the calls that we know."""
        if not isinstance(called, Global) or not isinstance(args, tuple):
            raise TensorFileError("damaged", "its pickle calls what is no function")
        if called.name in (_TENSOR, _PLAIN_TENSOR):
            return _view(*args[:4])
        if called.name == _TYPED_TENSOR:
            return _view(*args[:4])._replace(dtype=args[6].name[len("torch.") :])
        if called.name in (_PARAMETER, _PARAMETER_STATE, "torch.Size"):
            return args[0]
        if called.name != "collections.OrderedDict" or args:
            raise _refused(called.name)
        return {}

    def persistent(self, given: Any) -> Storage:
        """The tuple ("storage", type, key, location, elements) that stands for bytes outside of the pickle."""
        if not isinstance(given, tuple) or len(given) < 5 or given[0] != "storage" or not isinstance(given[1], Global):
            raise TensorFileError("damaged", "its pickle refers to something that is no storage")
        key, count = given[2], given[4]
        if not isinstance(key, str) or not isinstance(count, int) or count < 0:
            raise TensorFileError("damaged", "its pickle refers to a storage without key and size")
        short = given[1].name.rpartition(".")[2]
        if short == "UntypedStorage":
            return Storage("", key, count)
        dtype = STORAGES.get(short[: -len("Storage")])
        if dtype is None:
            raise TensorFileError("unsupported", "a storage of type `%s` is not known" % short[:80])
        return Storage(dtype, key, count)


def _refused(name: str) -> TensorFileError:
    return TensorFileError("unsupported", "its pickle calls `%s`, which no saved tensors need: it is not loaded" % name[:200])


def _view(storage: Any, offset: Any, shape: Any, stride: Any) -> View:
    """A tensor from data that may be of any type."""
    good = isinstance(storage, Storage) and isinstance(shape, tuple) and isinstance(stride, tuple) and len(shape) == len(stride)
    if not good or not all(isinstance(number, int) and number >= 0 for number in (offset, *shape, *stride)):
        raise TensorFileError("damaged", "its pickle rebuilds a tensor from what is no storage, shape and stride")
    return View(storage, offset, shape, stride, storage.dtype)


def _allowed(name: str) -> Global:
    storage = name.startswith("torch.") and name.endswith("Storage")
    if name not in _KNOWN and not storage and not (name.startswith("torch.") and name[6:] in BITS):
        raise _refused(name)
    return Global(name)


def _push(machine: _Machine, value: Any) -> None:
    machine.stack.append(value)


def _setitems(machine: _Machine, arg: Any) -> None:
    items = machine.since_mark()
    _fill(machine, items)


def _setitem(machine: _Machine, arg: Any) -> None:
    _fill(machine, _take(machine, 2))


def _fill(machine: _Machine, items: Sequence[Any]) -> None:
    target = machine.stack[-1]
    if not isinstance(target, dict) or len(items) % 2:
        raise TypeError("items for what is no dictionary")
    for at in range(0, len(items), 2):
        key = items[at]
        if not isinstance(key, (str, int, float, type(None))):  # a nested tuple can take for ever to hash
            raise TensorFileError("unsupported", "its pickle has a dictionary with keys that are no names")
        target[key] = items[at + 1]


def _take(machine: _Machine, count: int) -> Tuple[Any, ...]:
    if len(machine.stack) < count:
        raise IndexError("the stack is empty")
    items = tuple(machine.stack[len(machine.stack) - count :])
    del machine.stack[len(machine.stack) - count :]
    return items


def _tuples(count: int) -> Any:
    return lambda machine, arg: _push(machine, _take(machine, count))


def _reduce(machine: _Machine, arg: Any) -> None:
    called, args = _take(machine, 2)
    _push(machine, machine.reduce(called, args))


def _global(machine: _Machine, arg: Any) -> None:
    _push(machine, _allowed(str(arg).replace(" ", ".", 1)))


def _stack_global(machine: _Machine, arg: Any) -> None:
    module, name = _take(machine, 2)
    if not isinstance(module, str) or not isinstance(name, str):
        raise TypeError("a global without a name")
    _push(machine, _allowed(module + "." + name))


def _appends(machine: _Machine, arg: Any) -> None:
    items = machine.since_mark()
    _list(machine).extend(items)


def _append(machine: _Machine, arg: Any) -> None:
    value = machine.stack.pop()
    _list(machine).append(value)


def _list(machine: _Machine) -> List[Any]:
    if not isinstance(machine.stack[-1], list):
        raise TypeError("append to what is no list")
    return machine.stack[-1]


def _put(machine: _Machine, arg: Any) -> None:
    machine.memo[int(arg)] = machine.stack[-1]


_ACTS: Dict[str, Any] = {
    "PROTO": lambda machine, arg: None,
    "FRAME": lambda machine, arg: None,
    "STOP": lambda machine, arg: setattr(machine, "result", _take(machine, 1)),
    "MARK": lambda machine, arg: machine.marks.append(len(machine.stack)),
    "POP": lambda machine, arg: machine.stack.pop(),
    "EMPTY_DICT": lambda machine, arg: _push(machine, {}),
    "EMPTY_LIST": lambda machine, arg: _push(machine, []),
    "EMPTY_TUPLE": lambda machine, arg: _push(machine, ()),
    "NONE": lambda machine, arg: _push(machine, None),
    "NEWTRUE": lambda machine, arg: _push(machine, True),
    "NEWFALSE": lambda machine, arg: _push(machine, False),
    "TUPLE": lambda machine, arg: _push(machine, tuple(machine.since_mark())),
    "TUPLE1": _tuples(1),
    "TUPLE2": _tuples(2),
    "TUPLE3": _tuples(3),
    "LIST": lambda machine, arg: _push(machine, machine.since_mark()),
    "APPEND": _append,
    "APPENDS": _appends,
    "SETITEM": _setitem,
    "SETITEMS": _setitems,
    "REDUCE": _reduce,
    "BUILD": lambda machine, arg: machine.stack.pop(),  # attributes of an OrderedDict (`_metadata`): no tensors lie there
    "GLOBAL": _global,
    "STACK_GLOBAL": _stack_global,
    "BINPERSID": lambda machine, arg: _push(machine, machine.persistent(machine.stack.pop())),
    "BINPUT": _put,
    "LONG_BINPUT": _put,
    "MEMOIZE": lambda machine, arg: _put(machine, len(machine.memo)),
    "BINGET": lambda machine, arg: _push(machine, machine.memo[arg]),
    "LONG_BINGET": lambda machine, arg: _push(machine, machine.memo[arg]),
    **dict.fromkeys(
        "BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE SHORT_BINUNICODE BINUNICODE8 BINBYTES SHORT_BINBYTES".split(),
        _push,
    ),
}
"""What each operation does here; operations that are not named are refused."""
