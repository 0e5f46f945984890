"""Hostile model files for `fuzz.py`: small fitted models, and mutations of their files."""

import copy
import json
import pickle
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from altbi.errors import import_extra
from altbi.model._file import ENTRY, _compute_digest, read_model
from fuzz_bytes import (
    Rng,
    choose,
    cut,
    cut_out,
    flip_bytes,
    insert_noise,
    overwrite_integer,
    repeat,
)
from fuzz_tables import CANARY, HostileFile, build_table

# Tensors and header of a model file.
ModelContent = tuple[dict[str, NDArray[Any]], dict[str, Any]]

MODELS = ("distance", "whitened", "loss", "paper", "odim", "glow")
PAYLOAD = "hostile_payload"  # a module of the working folder; importing it creates CANARY
VALUES: tuple[Any, ...] = (
    0, 1, -1, 2, 0.5, 1e-320, 1e308, -1e308, 2**31, 2**53 + 1, 2**63, -(2**63), 2**70, 10**400,
    float("nan"), float("inf"), None, True, False, "", "x", "x" * 100_000, "\x00", "\x1b[2J",
    "\ud800", "nan", "1e999", [], [[]], [0] * 10_000, {}, {"object": "Glow"}, {"object": "IWAE"},
    {"object": "Schedule", "T2": 10**9}, {"object": "IWAE", "hidden": [10**9, 10**9]},
    {"object": "os.system"}, {"object": f"{PAYLOAD}.Payload"}, {"object": "CustomBackbone"},
    {"object": "CustomBackbone", "module": f"{PAYLOAD}.Payload"}, {"object": ["Schedule"]},
    "OutlierDetector", "ALTBI", "ODIM", "number", "category", "date", "boolean", 1e9, 1e18,
)  # fmt: skip
NUMBERS = (np.inf, -np.inf, np.nan, 3e38, -3e38, 1e30, 1e19, -1e19, 1e-45, 0.0, 1.0, -1.0)
TYPES = ("f2", "f4", "f8", "i1", "i8", "u1", "?", "c8")


def build_rows() -> pa.Table:
    """Return the table that the models are fitted on, and that they score."""
    return build_table(np.random.default_rng(1), 60)


def fit_base_models(folder: Path, names: Sequence[str] = MODELS) -> None:
    """Fit small models of these kinds, and save them into a folder.

    The model with a network in PyTorch is left out if PyTorch is not installed.
    """
    from altbi import ALTBI, ODIM, OutlierDetector, Schedule

    rows, few = build_rows(), Schedule(n0=32, T0=1, T1=2, T2=4)
    detectors: dict[str, Any] = {
        "distance": OutlierDetector(schedule=few, n_reference=30),
        "whitened": OutlierDetector(schedule=few, n_reference=30, whiten=True),
        "loss": ALTBI(schedule=few),
        "paper": ALTBI.paper().set_params(schedule=few),
        "odim": ODIM(n_models=2, patience=2, max_updates=40),
    }
    if "glow" in names and is_torch_installed():
        glow = import_extra("altbi.torch", extra="torch").Glow(flow_steps=1, hidden=(4, 4))
        detectors["glow"] = ALTBI(schedule=few, backbone=glow)
    for name in detectors.keys() & names:
        detectors[name].fit(rows).save(folder / f"{name}.altbi")


def is_torch_installed() -> bool:
    """Return whether PyTorch can be imported."""
    try:
        import_extra("torch", extra="torch")
    except ImportError:
        return False
    return True


def read_base_models(folder: Path) -> list[tuple[str, bytes, ModelContent]]:
    """Return the name, the content, and tensors and header of each model in a folder."""
    return [
        (path.stem, path.read_bytes(), read_model(path)) for path in sorted(folder.glob("*.altbi"))
    ]


def mutate_model(bases: list[tuple[str, bytes, ModelContent]], rng: Rng) -> HostileFile:
    """Return one of the models after a mutation of its bytes, or of tensors and header."""
    name, content, (tensors, header) = choose(bases, rng)
    if rng.random() < 0.3:
        mutation = choose(BYTE_MUTATIONS, rng)
        return f"{name} {mutation.__name__}", "model.altbi", mutation(content, rng)
    edit = choose(EDITS, rng)
    if edit is exchange_tensors:
        other = choose(bases, rng)[2][0]
        tensors = {**tensors, **dict([choose(list(other.items()), rng)])}
    model = dict(tensors), copy.deepcopy(header)
    edit(model, rng)
    return f"{name} {edit.__name__}", "model.altbi", _encode(*model, rng)


def change_values(model: ModelContent, rng: Rng) -> None:
    """Replace one to three values of the header."""
    for _ in range(rng.integers(1, 4)):
        container, key = choose(list(_list_values(model[1])), rng)
        container[key] = copy.deepcopy(choose(VALUES, rng))


def change_number(model: ModelContent, rng: Rng) -> None:
    """Replace a number of the header by another number."""
    numbers = [
        (container, key)
        for container, key in _list_values(model[1])
        if isinstance(container[key], int | float)
    ]
    container, key = choose(numbers, rng)
    factor = choose((0, -1, 2, 0.5, 1e3, 1e9, 1e300, -1e300), rng)
    changed = container[key] * factor if rng.random() < 0.7 else choose(VALUES[:15], rng)
    keeps_type = isinstance(container[key], int) and abs(changed) < 2**70
    container[key] = int(changed) if keeps_type else changed


def remove_value(model: ModelContent, rng: Rng) -> None:
    """Remove a value of the header."""
    container, key = choose(list(_list_values(model[1])), rng)
    del container[key]


def duplicate_value(model: ModelContent, rng: Rng) -> None:
    """Add a copy of a value of the header beside it, or in another container."""
    values = list(_list_values(model[1]))
    (container, key), (target, name) = choose(values, rng), choose(values, rng)
    added = copy.deepcopy(container[key])
    if isinstance(target, list):
        target.insert(name, added)
    else:
        target[choose((str(key), "extra", "", "object", "\x1b[2J"), rng)] = added


def nest_value(model: ModelContent, rng: Rng) -> None:
    """Put a value of the header into up to 300 lists."""
    container, key = choose(list(_list_values(model[1])), rng)
    for _ in range(rng.integers(1, 300)):
        container[key] = [container[key]]


def repeat_columns(model: ModelContent, rng: Rng) -> None:
    """Repeat the columns of the encoder, up to 10,000 times."""
    columns = next(
        container[key]
        for container, key in _list_values(model[1])
        if key == "columns" and isinstance(container[key], list)
    )
    times = int(10 ** rng.uniform(0.3, 4))
    columns.extend(
        {**each, "name": f"{each['name']}{at}"} for at in range(times) for each in columns[:1]
    )


def set_extreme_numbers(model: ModelContent, rng: Rng) -> None:
    """Set some or all elements of one to three tensors to an extreme number."""
    for _ in range(rng.integers(1, 4)):
        name = choose(list(model[0]), rng)
        tensor = np.array(model[0][name])
        share = choose((0.01, 0.3, 1.0), rng)
        chosen = rng.random(tensor.shape) <= share
        with np.errstate(all="ignore"):
            tensor[chosen] = np.asarray(choose(NUMBERS, rng)).astype(tensor.dtype)
        model[0][name] = tensor


def scale_tensor(model: ModelContent, rng: Rng) -> None:
    """Multiply a tensor by a large or small factor."""
    name = choose(list(model[0]), rng)
    with np.errstate(all="ignore"):
        factor = np.float64(choose((1e10, 1e19, 1e30, 1e38, -1e38, 1e-40, -1.0), rng))
        model[0][name] = (model[0][name] * factor).astype(model[0][name].dtype)


def change_shape(model: ModelContent, rng: Rng) -> None:
    """Change the shape of a tensor: empty, transposed, flat, or longer along one axis."""
    name = choose(list(model[0]), rng)
    tensor = model[0][name]
    model[0][name] = choose(
        (tensor[:0], tensor.T, tensor.ravel(), tensor[None], np.repeat(tensor, 2, 0), tensor[:1],
         np.zeros((0, 2**40), tensor.dtype), np.zeros((50_000, 200), tensor.dtype)), rng
    )  # fmt: skip


def change_type(model: ModelContent, rng: Rng) -> None:
    """Convert a tensor to another type."""
    name = choose(list(model[0]), rng)
    with np.errstate(all="ignore"):
        model[0][name] = model[0][name].astype(choose(TYPES, rng))


def add_tensors(model: ModelContent, rng: Rng) -> None:
    """Add up to 30,000 tensors, with names of all kinds."""
    for index in range(int(10 ** rng.uniform(0, 4.5))):
        model[0][f"{choose(('extra', 'snapshot.', '../', chr(27)), rng)}{index}"] = np.zeros(1)


def remove_tensor(model: ModelContent, rng: Rng) -> None:
    """Remove a tensor."""
    del model[0][choose(list(model[0]), rng)]


def exchange_tensors(model: ModelContent, rng: Rng) -> None:
    """Exchange two tensors; `mutate_model` has added one of another model."""
    first, second = choose(list(model[0]), rng), choose(list(model[0]), rng)
    model[0][first], model[0][second] = model[0][second], model[0][first]


def declare_huge_tensor(content: bytes, rng: Rng) -> bytes:
    """Return the content with a shape, type or range in the list of tensors that is not true."""
    (size,) = struct.unpack("<Q", content[:8])
    entries = json.loads(content[8 : 8 + size])
    entry = entries[choose([name for name in entries if name != "__metadata__"], rng)]
    change = choose(
        ({"shape": [2**40, 2**20]}, {"shape": [2**63, 2]}, {"shape": [-1]}, {"shape": []},
         {"shape": [1] * 1000}, {"data_offsets": [0, 2**62]}, {"data_offsets": [2**40, 2**41]},
         {"data_offsets": [8, 0]}, {"dtype": "F8_E4M3"}, {"dtype": "BF16"}, {"dtype": "F64"},
         {"dtype": "x" * 1000}, {"shape": [0, 2**62]}), rng
    )  # fmt: skip
    entry |= change
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text + content[8 + size :]


def declare_size(content: bytes, rng: Rng) -> bytes:
    """Return the content with another size of the list of tensors."""
    size = choose((0, 1, 7, 2**20, 10**8, 2**31, 2**62, 2**64 - 1), rng)
    return struct.pack("<Q", size) + content[8:]


def nest_deeply(content: bytes, rng: Rng) -> bytes:
    """Return the content with up to 10^6 brackets in the header."""
    return content.replace(b'\\"encoder\\"', b"[" * int(10 ** rng.uniform(2, 6)), 1)


def replace_content(content: bytes, rng: Rng) -> bytes:
    """Return the content of another file format, or nothing."""
    code = f"c__builtin__\nexec\n(Vopen({CANARY!r}, 'w')\ntR.".encode()
    return choose((b"", b"{}", b"a,b\n1,2\n", b"PK\x03\x04" + bytes(99), code, bytes(10_000),
                    pickle.dumps({"a": np.zeros(3)})), rng)  # fmt: skip


BYTE_MUTATIONS: list[Callable[[bytes, Rng], bytes]] = [
    flip_bytes, flip_bytes, cut, cut_out, repeat, insert_noise, overwrite_integer,
    declare_huge_tensor, declare_huge_tensor, declare_size, nest_deeply, replace_content,
]  # fmt: skip
EDITS: list[Callable[[ModelContent, Rng], None]] = [
    change_values, change_values, change_number, change_number, remove_value, duplicate_value,
    nest_value, repeat_columns, set_extreme_numbers, set_extreme_numbers, scale_tensor,
    scale_tensor, change_shape, change_type, add_tensors, remove_tensor, exchange_tensors,
]  # fmt: skip


def _list_values(node: Any) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401 - any JSON value
    """Yield container and key of all values in a JSON value, also of containers."""
    keys = list(node) if isinstance(node, dict) else range(len(node))
    for key in keys:
        yield node, key
        if isinstance(node[key], dict | list):
            yield from _list_values(node[key])


def _encode(tensors: dict[str, NDArray[Any]], header: dict[str, Any], rng: Rng) -> bytes:
    """Return a model file with this content, and a valid digest in nine of ten cases."""
    from safetensors.numpy import save

    text = json.dumps(header, sort_keys=True)
    digest = _compute_digest(text, tensors) if rng.random() < 0.9 else "0" * 64
    contiguous = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    content: bytes = save(contiguous, metadata={ENTRY: f"{digest}\n{text}"})
    return content
