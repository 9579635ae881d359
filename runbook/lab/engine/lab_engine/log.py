"""Log lines as SGLang shapes them: `[2026-11-29 18:45:31 TP0] text`, on stderr."""

import copy
import logging
import sys

STAMP = "%Y-%m-%d %H:%M:%S"


def configure(tag=""):
    """Root logger of this process; `tag` names the rank when there are several."""
    tag = f" {tag}" if tag else ""
    logging.basicConfig(level=logging.INFO, format=f"[%(asctime)s{tag}] %(message)s", datefmt=STAMP, stream=sys.stderr, force=True)


def uvicorn_config():
    """Uvicorn's own logging in the same shape, access lines on stderr too."""
    from uvicorn.config import LOGGING_CONFIG

    config = copy.deepcopy(LOGGING_CONFIG)
    config["formatters"]["default"].update(fmt="[%(asctime)s] %(levelprefix)s %(message)s", datefmt=STAMP, use_colors=False)
    access = '[%(asctime)s] %(levelprefix)s %(client_addr)s - "%(request_line)s" %(status_code)s'
    config["formatters"]["access"].update(fmt=access, datefmt=STAMP, use_colors=False)
    config["handlers"]["access"]["stream"] = "ext://sys.stderr"
    return config
