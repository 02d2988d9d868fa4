"""The home folder and the settings file, found without reading any setting.

Free of heavy imports: a command that asks a running server needs these and no more.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from catalog.core.errors import ConfigError
from catalog.core.os_errors import describe_os_error

_NOT_IN_KEY = ("IDX_HOME", "IDX_PRESET", "IDX_LOG_LEVEL", "IDX_SERVE__")


def default_home() -> Path:
    """Return the user's data folder."""
    from platformdirs import user_data_path

    return user_data_path("catalog")


def home_folder(chosen: Path | None = None) -> Path:
    """Return the folder of the store: the chosen one, else ``IDX_HOME``, else the default."""
    variable = os.environ.get("IDX_HOME")
    return chosen or (Path(variable) if variable else default_home())


def settings_file(home: Path) -> Path | None:
    """Return ``IDX_CONFIG``, else ``catalog.toml`` in the home folder if it is there.

    Raises :class:`ConfigError` for a home folder that cannot be looked into.
    """
    variable = os.environ.get("IDX_CONFIG")
    if variable:
        return Path(variable)
    path = home / "catalog.toml"
    try:
        return path if path.is_file() else None
    except OSError as error:
        raise ConfigError(
            f"cannot look for settings in {describe_os_error(path, error)}"
        ) from error


def settings_key(
    home: Path, preset: str | None, environment: Mapping[str, str] | None = None
) -> str:
    """Hash all that settings are made from; equal hexadecimal keys mean equal settings.

    Those are the ``IDX_*`` variables, the preset's name, the settings file's content and the home
    folder. What does not bear on an answer is left out: the log level, and how a server is reached.
    """
    variables = os.environ if environment is None else environment
    file = settings_file(home)
    try:
        content = b"" if file is None else file.read_bytes()
    except OSError:
        content = b"?"  # loading the settings will say what is wrong
    relevant = sorted(
        (name, value)
        for name, value in variables.items()
        if value and name.startswith("IDX_") and not name.startswith(_NOT_IN_KEY)
    )
    chosen = preset or variables.get("IDX_PRESET")
    seed = repr((str(home.resolve()), chosen, relevant)).encode("utf-8", "surrogatepass")
    return hashlib.sha256(seed + b"\0" + content).hexdigest()
