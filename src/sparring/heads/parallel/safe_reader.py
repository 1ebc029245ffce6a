"""Reading torch.distributed.checkpoint folders without running code from them.

Such a folder holds two kinds of pickles. torch reads ``.metadata`` with plain pickle, and entries of data
files that are not tensors with ``weights_only=False``; either can run any command. Here the first is read by
an unpickler that accepts only the classes of metadata, and the second with ``weights_only=True``.
"""

import io
import pickle
from pathlib import Path, PurePath
from typing import Any, ClassVar

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.state_dict_loader import load as load_state_dict

CLASSES = {
    "torch.distributed.checkpoint.metadata": {
        *("BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex", "StorageMeta"),
        *("TensorProperties", "TensorStorageMetadata", "_MEM_FORMAT_ENCODING"),
    },
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch": {"Size"} | {name for name, value in vars(torch).items() if isinstance(value, torch.dtype)},
    "torch.serialization": {"_get_layout"},  # looks a name up in a table
    "pathlib": {"Path", "PosixPath", "WindowsPath", "PurePath", "PurePosixPath", "PureWindowsPath"},
    "pathlib._local": {"Path", "PosixPath", "WindowsPath"},  # Python 3.13
    "collections": {"OrderedDict"},
}


class UntrustedCheckpointError(ValueError):
    """A checkpoint holds more than tensors and plain values; unpickling it could run code."""


_Unpickler: Any = pickle._Unpickler


class _MetadataUnpickler(_Unpickler):
    """Accepts the classes above, and sets attributes of instances only.

    A pickle can also set attributes of a class. Only the unpickler written in Python can prevent that.
    """

    dispatch: ClassVar[dict[int, Any]] = dict(_Unpickler.dispatch)

    def load_build(self) -> None:
        if type(self.stack[-2]).__module__ not in CLASSES:  # a class's type is `type`, of builtins
            raise UntrustedCheckpointError(f"it sets attributes of {self.stack[-2]!r}")
        super().load_build()

    dispatch[pickle.BUILD[0]] = load_build

    def find_class(self, module: str, name: str) -> Any:
        if name not in CLASSES.get(module, ()):
            raise UntrustedCheckpointError(f"it asks for {module}.{name}, which is no class of metadata")
        if module.startswith("pathlib"):
            return PurePath  # the checkpoint may come from another operating system
        return super().find_class(module, name)


def read_metadata(path: Path) -> Metadata:
    """Read the metadata of a checkpoint.

    Raises:
        UntrustedCheckpointError: The file uses other classes, or names files outside its folder.
        ValueError: The file is damaged.
    """
    advice = "load only checkpoints that you trust; nothing of this one was run"
    try:
        with path.open("rb") as file:
            metadata = _MetadataUnpickler(file).load()
        if not isinstance(metadata, Metadata):
            raise UntrustedCheckpointError(f"expected checkpoint metadata, got {type(metadata).__name__}")
        names = [str(info.relative_path) for info in metadata.storage_data.values()]
        if outside := [name for name in names if name in ("", ".", "..") or Path(name).name != name]:
            raise UntrustedCheckpointError(f"it names a file outside its folder, {outside[0]}")
    except UntrustedCheckpointError as error:
        raise UntrustedCheckpointError(f"{path}: {error}; {advice}") from None
    except OSError:
        raise
    except Exception as error:  # a damaged pickle can raise anything
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"{path}: damaged, cannot be read as checkpoint metadata ({reason})") from None
    return metadata


class SafeReader(FileSystemReader):
    """A FileSystemReader that uses `read_metadata`."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        rank = kwargs.get("rank")
        metadata = read_metadata(Path(self.path) / (".metadata" if rank is None else f"__{rank}.metadata"))
        if metadata.storage_meta is None:
            metadata.storage_meta = StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata


class SafeLoadPlanner(DefaultLoadPlanner):
    """A DefaultLoadPlanner that accepts tensors and plain values only."""

    def load_bytes(self, read_item: Any, value: io.BytesIO) -> None:
        name = read_item.dest_index.fqn
        try:
            content = torch.load(value, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            reason = str(error).strip().partition("\n")[0]
            raise UntrustedCheckpointError(
                f"{name} holds more than tensors and plain values, and is not loaded: {reason}; save numbers,"
                " strings, lists, dicts or tensors instead"
            ) from None
        checked = io.BytesIO()  # torch reads this with weights_only=False, so it is written anew
        torch.save(content, checked)
        checked.seek(0)
        super().load_bytes(read_item, checked)


def load(state: dict[str, Any], folder: Path) -> None:
    """torch.distributed.checkpoint.load without running code from the folder.

    Raises:
        UntrustedCheckpointError: The checkpoint could run code.
    """
    read_metadata(folder / ".metadata")  # torch would wrap the error in another one
    try:
        load_state_dict(state, storage_reader=SafeReader(folder), planner=SafeLoadPlanner())
    except CheckpointException as error:
        for failure, _ in error.failures.values():
            if isinstance(failure, UntrustedCheckpointError):
                raise UntrustedCheckpointError(f"{folder}: {failure}") from None
        raise
