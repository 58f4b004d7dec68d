"""Models from the Hugging Face hub: safetensors only, and a clear word at once where there is no network."""

from __future__ import annotations

from pathlib import Path

from lab.errors import LabError, ModelError
from lab.models.atomic import ProgressCallback, silent
from lab.models.weights import weight_files

_TIMEOUT_S = 8.0
_WANTED = (".json", ".jinja", ".txt", ".model", ".safetensors")


def cache_location() -> Path:
    """Where the hub's own cache is, which may not exist."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def local_snapshot(repo: str) -> Path | None:
    """The newest whole snapshot of a hub model in the hub's own cache, None if there is none."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(repo, "config.json")
    if not isinstance(found, str):
        return None
    directory = Path(found).parent
    try:
        weight_files(directory)
    except ModelError:
        return None
    return directory


def fetch(repo: str, progress: ProgressCallback = silent) -> Path:
    """Download a hub model into the hub's own cache and give its directory.

    Raises:
        ModelError: no network, no such model, a gated one, or one without safetensors.
    """
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    progress(f"asking the hub for {repo}", None)
    try:
        info = HfApi().model_info(repo, files_metadata=True, timeout=_TIMEOUT_S)
        files = {f.rfilename: int(f.size or 0) for f in info.siblings or [] if _wanted(f.rfilename)}
        if not any(name.endswith(".safetensors") for name in files):
            raise ModelError(
                f"{repo} offers no safetensors; pickle weights can run code when opened and are never loaded.",
                remedy="Look for a version of the model with safetensors.",
            )
        total, done = max(sum(files.values()), 1), 0
        found = ""
        for name, size in sorted(files.items(), key=lambda item: item[1]):
            progress(f"downloading {repo} ({total / 2**20:,.0f} MiB)", done / total)
            path = hf_hub_download(repo, name, revision=info.sha)
            found = path if name == "config.json" else found
            done += size
    except GatedRepoError:
        raise ModelError(
            f"{repo} is gated: its owner wants an agreement first.",
            remedy="Accept it on the hub and log in: hf auth login",
        ) from None
    except RepositoryNotFoundError:
        raise ModelError(f"The hub has no model {repo}, or it is private.", remedy="Check the name.") from None
    except LabError:
        raise
    except Exception as error:  # the client lets the errors of whichever HTTP library it has through
        raise _unreachable(repo, error) from error
    if not found:
        raise ModelError(f"{repo} holds no config.json.", remedy="Is it a model in transformers format?")
    return Path(found).parent


def _wanted(name: str) -> bool:
    return "/" not in name and name.endswith(_WANTED) and not name.startswith(("consolidated", "adapter_"))


def _unreachable(repo: str, error: Exception) -> ModelError:
    reason = str(error).strip().splitlines()[0][:160] if str(error).strip() else type(error).__name__
    return ModelError(
        f"{repo} is not on this machine and the hub cannot be reached ({reason}).",
        remedy="Check the network, copy the model's directory here and give its path, or use smollm2-135m-instruct.",
    )
